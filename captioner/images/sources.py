"""What a caller may give as an image, and its bytes: paths, bytes, file objects, Pillow images, arrays."""

from __future__ import annotations

import inspect
import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.errors import ImageError, ImageUnreadableError, NotAnImageError, reason_of
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits, too_many_bytes
from captioner.images.urls import is_data_url, is_url, read_data_url


@runtime_checkable
class BinaryFile(Protocol):
    """A file object opened in binary mode."""

    def read(self, size: int = ..., /) -> bytes: ...


ImageInput = (
    str | os.PathLike[str] | bytes | BinaryFile | Image.Image | npt.NDArray[np.uint8] | Mapping[str, Any]
)
"""One image: a path or data URL, the bytes of a file, a binary file object, a Pillow image, a uint8 array of
shape (height, width, 3) in RGB, or an undecoded image of Hugging Face's `datasets`, a dict with its
`bytes` and its `path`."""
ImageOrError = ImageInput | ImageError
"""An image, or the error that says why it cannot be read."""
_BASE64 = ("/9j/", "iVBORw0", "R0lGOD", "UklGR")
"""How JPEG, PNG, GIF and WebP begin in base64."""
_TEXT_MODE = "the file must be opened in binary mode"


def is_single(images: Any) -> TypeGuard[ImageInput]:
    """Whether this is one image and not a collection of them. An array of three dimensions is one image; so
    is, for a clear error later, what cannot be iterated over, and an array of another library."""
    if isinstance(images, np.ndarray):
        # A row of paths, or of other images, as a table's column has them; what holds numbers is pixels.
        return images.ndim != 4 and not (images.ndim == 1 and images.dtype.kind in "OUT")
    if isinstance(images, (str, os.PathLike, bytes, bytearray, memoryview, Image.Image, Mapping)):
        return True
    is_array = getattr(images, "ndim", None) in (2, 3)  # a tensor, or a table of pandas
    return is_array or hasattr(images, "read") or not isinstance(images, Iterable)


def to_image(array: npt.NDArray[Any]) -> Image.Image:
    """An array as a Pillow image. Raises `NotAnImageError` unless it is uint8 of (height, width, 3)."""
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise NotAnImageError(
            f"an array must be uint8 of shape (height, width, 3), got {array.dtype} {array.shape}"
        )
    return Image.fromarray(np.ascontiguousarray(array))


def own_frame(image: ImageOrError) -> ImageOrError:
    """An image for use after the next one has been asked for: an iterator over the frames of an animation may
    give the same Pillow image for all, which is turned to the next then."""
    if not isinstance(image, Image.Image):
        return image
    try:
        return image.copy() if getattr(image, "is_animated", False) else image
    except Exception:  # as many kinds as in `open_image`, also where it only looks for a second frame
        return NotAnImageError("the image cannot be used")


def rereadable(image: ImageOrError, limits: ImageLimits = DEFAULT_LIMITS) -> ImageInput:
    """The content of a file object or a data URL as bytes; any other image unchanged. The result can be read
    repeatedly.

    Raises an `ImageError` given as the image, or if the file cannot be read or exceeds `max_bytes`.
    """
    if isinstance(image, ImageError):
        raise image
    if isinstance(image, str) and is_data_url(image):
        return read_data_url(image)
    return _read_file_object(image, limits) if _is_file_object(image) else image


def name_image(error: ImageError, image: Any, *, says_so: bool = False) -> ImageError:
    """The error, which knows the path of its image; with `says_so`, its message begins with it."""
    if error.image is None and isinstance(image, (str, os.PathLike)) and not is_data_url(os.fsdecode(image)):
        error.image = os.fsdecode(image)
    error.names_image = error.names_image or says_so
    return error


def read_file(source: ImageInput, limits: ImageLimits = DEFAULT_LIMITS) -> bytes:
    """The bytes of an image file, not decoded: for sending them elsewhere.

    Raises `ImageUnreadableError` and `ImageTooLargeError` as `open_image` does.
    """
    with open_stream(source, limits) as stream:
        return stream.read()


@contextmanager
def open_stream(source: Any, limits: ImageLimits) -> Iterator[IO[bytes]]:
    """A seekable stream over a path, bytes or a file object, with no more bytes than the limit.
    Raises an `ImageError` for what cannot be read or is larger."""
    if isinstance(source, Mapping):
        source = _content(source)
    if _is_file_object(source):
        source = _read_file_object(source, limits)
    if isinstance(source, str) and is_data_url(source):
        source = read_data_url(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        _check_bytes(len(source), limits)
        yield io.BytesIO(source)
        return
    if not isinstance(source, (str, os.PathLike)):
        raise NotAnImageError(
            "expected a path, bytes, a binary file, a Pillow image or a NumPy array, "
            f"got {type(source).__name__}"
        )
    try:
        file = open(source, "rb")  # noqa: SIM115 PTH123 (closed below; PathLike as it is)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        if isinstance(source, str) and is_url(source):
            raise ImageUnreadableError(
                "is a URL: give its bytes; only the command line fetches it (captioner caption --allow-urls)"
            ) from error
        hint = "; is it base64? Decode it first" if str(source).startswith(_BASE64) else ""
        raise ImageUnreadableError(reason_of(error, "not a valid path") + hint) from error
    with file:
        try:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                _check_bytes(status.st_size, limits)
                stream: IO[bytes] = file
            else:  # a pipe: no size beforehand, no seeking
                data = file.read(limits.max_bytes + 1)
                _check_bytes(len(data), limits)
                stream = io.BytesIO(data)
        except OSError as error:
            raise ImageUnreadableError(reason_of(error, "cannot be read")) from error
        yield stream


def _content(record: Mapping[str, Any]) -> Any:
    for name in ("bytes", "path"):
        if record.get(name) is not None:
            return record[name]
    raise NotAnImageError('a dict is an image if it has its "bytes" or its "path"')


def _is_file_object(source: Any) -> TypeGuard[BinaryFile]:
    return not isinstance(source, (Image.Image, np.ndarray)) and hasattr(source, "read")


def _read_file_object(file: Any, limits: ImageLimits) -> bytes:
    """The whole file, from its start where it can seek."""
    try:
        # Nor has a stream behind a file any such method, as that of a tar archive.
        with suppress(AttributeError):
            if file.seekable():
                file.seek(0)
        data = bytearray()
        # Raw streams and unbuffered pipes return fewer bytes than they are asked for.
        while part := file.read(limits.max_bytes + 1 - len(data)):
            if inspect.iscoroutine(part):
                part.close()
                raise NotAnImageError("the file is asynchronous: give what awaiting its read() returns")
            if isinstance(part, str):
                raise NotAnImageError(_TEXT_MODE)
            data += part
            _check_bytes(len(data), limits)
    except ImageError:
        raise
    except UnicodeDecodeError as error:
        raise NotAnImageError(_TEXT_MODE) from error
    except Exception as error:  # every kind of file has errors of its own: zip, gzip, answers over HTTP
        raise ImageUnreadableError(reason_of(error) or type(error).__name__) from error
    if part is None:
        raise ImageUnreadableError("the file is open without blocking, and its data have not arrived yet")
    return bytes(data)


def _check_bytes(count: int, limits: ImageLimits) -> None:
    if count > limits.max_bytes:
        raise too_many_bytes(limits.max_bytes)
