"""The errors a user can meet, and what each becomes.

Every error carries the three faces it can show: `exit_status` (command line), `grpc_code` (the name of
a gRPC status code) and `code` (a short stable word for JSON records). Anything that is not a
`CaptionerError` is a defect of ours.
"""

from __future__ import annotations

_MAX_QUOTED = 200


def clip(text: object, limit: int = _MAX_QUOTED) -> str:
    """At most `limit` characters of a text that somebody else wrote, with a mark where the rest is left out.

    For messages and logs, which are to stay short whatever the caller sends."""
    whole = text if isinstance(text, str) else repr(text)
    return whole if len(whole) <= limit else f"{whole[:limit]}... ({len(whole)} characters)"


class CaptionerError(Exception):
    """Base of all errors that a user can cause or must act on. The message is one line, for people."""

    code = "internal"
    exit_status = 1
    grpc_code = "INTERNAL"


class ImageError(CaptionerError):
    """One image cannot be captioned; the others can."""

    code = "invalid_image"
    grpc_code = "INVALID_ARGUMENT"


class ImageUnreadableError(ImageError):
    """The file is missing, a directory, or may not be read."""

    code = "unreadable"


class NotAnImageError(ImageError):
    """The bytes are not an image in a format that is known, or are cut short."""

    code = "not_an_image"


class ImageTooLargeError(ImageError):
    """More bytes or pixels than the limits allow (`captioner.images.opening.ImageLimits`)."""

    code = "too_large"


class LowConfidenceError(ImageError):
    """The caption is less likely to be good than was asked for."""

    code = "low_confidence"


class ModelOutputError(ImageError):
    """The model computed no finite numbers for this image."""

    code = "model_output"
    grpc_code = "INTERNAL"


class OptionsError(CaptionerError, ValueError):
    """An option is out of its range, or options contradict each other."""

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
    """A package that an optional extra brings is not installed; the message names the extra."""

    code = "runtime_missing"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"


class DeviceError(CaptionerError):
    """The device asked for cannot really be used."""

    code = "device_unavailable"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"


class DataError(CaptionerError):
    """Training or evaluation data, a configuration or a checkpoint cannot be used."""

    code = "invalid_data"
    exit_status = 2
    grpc_code = "INVALID_ARGUMENT"


class OutputError(CaptionerError):
    """What is to be written cannot be: no room, no permission, or another run is writing it."""

    code = "output"
    exit_status = 2
    grpc_code = "FAILED_PRECONDITION"
