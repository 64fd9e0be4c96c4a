"""The errors that users can meet.

Each has an `exit_status` (command line), a `grpc_code` (name of a gRPC status code) and a `code` (a short
stable word for JSON). Any other exception is a defect of this project.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from captioner.printable import printable

REJECTED = "rejected"
"""The status of a caption that a person rejected; also its error code, which does not count as a failure."""
_MAX_QUOTED = 200
_LONGEST_PATH = 4096


def clip(text: object, limit: int = _MAX_QUOTED) -> str:
    """At most `limit` characters of untrusted text, with a mark if the rest was cut.

    Keeps messages and logs short, whatever the caller sends.
    """
    whole = text if isinstance(text, str) else repr(text)
    return whole if len(whole) <= limit else f"{whole[:limit]}... ({len(whole)} characters)"


def clip_path(path: str) -> str:
    """A path for a message: whole, unless it is too long for any file, such as base64 in place of one."""
    return clip(path) if len(path) >= _LONGEST_PATH else path


def closest(name: str, known: Iterable[str], similarity: float = 0.6) -> str | None:
    """Which of the `known` names one is most like, if they have at least this `similarity` (of 1)."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=similarity)), None)


def did_you_mean(name: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """The end of a message about a name that is not `known`: the closest that is, if there is one."""
    close = closest(name, known, similarity)
    return f"; did you mean {close}?" if close else ""


def reason_of(error: BaseException, otherwise: str = "") -> str:
    """What the system says of an `OSError`; of other errors what they say themselves, or `otherwise`."""
    return getattr(error, "strerror", None) or otherwise or str(error)


def how_to_install(extra: str) -> str:
    """What brings an optional part, or, without a name, all that is always needed. The project is installed
    from a clone: its name on a package index may be somebody else's."""
    what = f"'.[{extra}]'" if extra else "."
    return f"pip install {what} in a clone of the project"


def how_to_install_a_runtime() -> str:
    """What brings ONNX Runtime, with all that a server needs."""
    return f"{how_to_install('cpu')}, or '.[gpu]' for CUDA"


class CaptionerError(Exception):
    """Base class of errors that a user can cause or must act on. The message is one line and printable."""

    code = "internal"
    exit_status = 1
    grpc_code = "INTERNAL"

    @property
    def reason(self) -> str:
        """The message, for those who name the image themselves."""
        return printable(super().__str__())

    def __str__(self) -> str:
        return self.reason

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ImageError(CaptionerError):
    """One image cannot be captioned; the others can."""

    code = "invalid_image"
    grpc_code = "INVALID_ARGUMENT"

    image: str | None = None
    """The path of the image; None if it is none or not known."""
    names_image = False
    """Whether the message begins with the path, as `caption` has it; `caption_each` leaves that to its
    caller."""
    index: int | None = None
    """Where `caption` raises it for one of several images: its position among them, from 0."""
    outcomes: Sequence[Any] = ()
    """There too: what became of all images, the caption or the error of each."""

    def __str__(self) -> str:
        names_it = self.names_image and self.image is not None
        return f"{printable(clip_path(str(self.image)))}: {self.reason}" if names_it else self.reason

    def among(self, outcomes: Sequence[Any], index: int) -> Self:
        """This error as that of one of several images, named in the message."""
        failure = copy.copy(self)
        count = sum(isinstance(outcome, CaptionerError) for outcome in outcomes)
        others = f" ({count} of {len(outcomes)} images failed; see .outcomes or return_errors=True)"
        place = "" if self.image is not None else f"image {index}: "
        failure.args = (f"{place}{self.reason}{others}",)
        failure.index, failure.outcomes, failure.names_image = index, outcomes, True
        return failure


class ImageUnreadableError(ImageError):
    """The file is missing, a folder, or may not be read."""

    code = "unreadable"


class NotAnImageError(ImageError):
    """The bytes are not an image in a known format, or are incomplete."""

    code = "not_an_image"


class ImageTooLargeError(ImageError):
    """The image exceeds a limit of `captioner.ImageLimits`."""

    code = "too_large"


class DecodingInterruptedError(ImageError):
    """The process that decoded the image was killed, most likely for want of memory, or hardly ran: it may
    succeed later."""

    code = "interrupted"
    grpc_code = "RESOURCE_EXHAUSTED"


class LowConfidenceError(ImageError):
    """The confidence of the caption is below the requested minimum."""

    code = "low_confidence"


class ModelOutputError(ImageError):
    """The model computed no finite numbers for this image."""

    code = "model_output"
    grpc_code = "INTERNAL"


class OptionsError(CaptionerError, ValueError):
    """An option is out of range, or options conflict."""

    code = "invalid_options"
    exit_status = 2
    grpc_code = "INVALID_ARGUMENT"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class BundleError(CaptionerError):
    """A model bundle is missing, altered, incomplete or of another format."""

    code = "invalid_bundle"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"


class RuntimeMissingError(CaptionerError):
    """A package of an optional extra is not installed, or conflicts with another one; the message says what
    to install."""

    code = "runtime_missing"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"


class DeviceError(CaptionerError):
    """The requested device cannot be used."""

    code = "device_unavailable"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"


class DataError(CaptionerError):
    """Training or evaluation data, a configuration or a checkpoint cannot be used."""

    code = "invalid_data"
    exit_status = 2
    grpc_code = "INVALID_ARGUMENT"


class OutputError(CaptionerError):
    """The output cannot be written: disk full, permission denied, or another run is writing it."""

    code = "output"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"


@contextmanager
def needing_threads() -> Iterator[None]:
    """Around what starts work on threads, which Python does not once the main thread has ended. Raises
    `CaptionerError` then."""
    try:
        yield
    except RuntimeError as error:
        if not any(said in str(error) for said in ("interpreter shutdown", "atexit after shutdown")):
            raise
        raise CaptionerError(
            "this thread has outlived the main thread: join() it at the end of the program"
        ) from error
