"""Turns an image as the caller has it into the bytes to send."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from captioner.errors import ImageTooLargeError
from captioner.images.opening import ImageInput, ImageLimits, open_image, read_file
from captioner.images.sources import rereadable
from captioner_client.settings import ClientOptions

_JPEG_QUALITY = 95


def prepare(image: ImageInput, options: ClientOptions) -> tuple[ImageInput, bytes]:
    """The image, in a form that can be read again, and its payload. Raises an `ImageError`."""
    image = rereadable(image)
    return image, make_payload(image, options)


def make_payload(image: ImageInput, options: ClientOptions) -> bytes:
    """The bytes of a file unchanged; Pillow images, arrays and photos to shrink are encoded.

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
    return read_file(image, ImageLimits(max_bytes=options.max_image_bytes))


def _encode(image: Image.Image, format: str, **parameters: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **parameters)
    return buffer.getvalue()
