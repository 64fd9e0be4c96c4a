"""Turns an image as the caller has it into the bytes to send."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from captioner.errors import ImageTooLargeError, NotAnImageError
from captioner.images.formats import HEAD_BYTES, SAFE_FORMATS, detect_format
from captioner.images.limits import ImageLimits
from captioner.images.opening import open_image
from captioner.images.sources import ImageInput, ImageOrError, read_file, rereadable
from captioner_client.options import ClientOptions

_JPEG_QUALITY = 95


def prepare(image: ImageOrError, options: ClientOptions) -> tuple[ImageInput, bytes]:
    """The image, in a form that can be read again, and its payload. Raises an `ImageError`."""
    image = rereadable(image)
    return image, encode_image(image, options)


def encode_image(image: ImageInput, options: ClientOptions) -> bytes:
    """The bytes of a file unchanged; Pillow images, arrays, photos to shrink and rare formats are encoded.

    Raises an `ImageError` for what cannot be read, or is larger than the limit.
    """
    if options.shrink_to is not None:
        # Not shrunk to exactly that side, so that a larger photo can be told from one that fits.
        small = open_image(image, target=options.shrink_to + 1)
        if max(small.size) > options.shrink_to or isinstance(image, np.ndarray | Image.Image):
            small.thumbnail((options.shrink_to, options.shrink_to), Image.Resampling.LANCZOS)
            return _encode(small, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    if isinstance(image, np.ndarray | Image.Image):
        payload = _encode(open_image(image), "PNG", compress_level=1)  # without loss: captions as if local
        if len(payload) > options.max_image_bytes:
            limit = f"the limit of {options.max_image_bytes} (max_image_bytes)"
            raise ImageTooLargeError(f"{len(payload)} bytes are more than {limit}; see shrink_to")
        return payload
    content = read_file(image, ImageLimits(max_bytes=options.max_image_bytes))
    if not _is_rare(content):
        return content
    try:
        return _encode(open_image(content), "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    except NotAnImageError:
        return content  # cannot be read here, but maybe by the server


def is_ready(image: ImageInput, options: ClientOptions) -> bool:
    """Whether the image is sent as it is, without any work."""
    return isinstance(image, bytes) and options.shrink_to is None and not _is_rare(image)


def _is_rare(content: bytes) -> bool:
    """Whether it is of a format that servers accept only if they are told to, such as HEIC."""
    try:
        return detect_format(content[:HEAD_BYTES]) not in SAFE_FORMATS
    except NotAnImageError:
        return False


def _encode(image: Image.Image, format: str, **parameters: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **parameters)
    return buffer.getvalue()
