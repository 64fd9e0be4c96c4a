"""Limits of images: what is larger is rejected before it costs memory."""

from __future__ import annotations

from dataclasses import dataclass

from captioner.errors import ImageTooLargeError, OptionsError
from captioner.images.formats import ALL_FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """Images beyond these limits are rejected before they cost memory. Raises `OptionsError` for a limit
    below 1."""

    max_bytes: int = 256 * 2**20
    """Largest file in bytes."""
    max_pixels: int = 200_000_000
    """Largest width x height."""
    max_memory: int = 4 * 2**30
    """Most memory that decoding may take, in bytes, by the image's format, mode and size: 4 bytes a pixel;
    less for greyscale images, and for a JPEG that is decoded at reduced size; a progressive JPEG 6, AVIF 9,
    WebP 16, JPEG 2000 20. Serve strangers with less."""
    formats: tuple[str, ...] = ALL_FORMATS
    """The formats that are read."""

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_pixels", "max_memory"):
            if getattr(self, name) < 1:
                raise OptionsError(f"{name} must be at least 1, got {getattr(self, name)}", name)
        if not self.formats or not set(self.formats) <= set(ALL_FORMATS):
            raise OptionsError(f"formats must be some of {', '.join(ALL_FORMATS)}", "formats")


DEFAULT_LIMITS = ImageLimits()


def too_many_bytes(limit: int) -> ImageTooLargeError:
    """The error for an image of more than `limit` bytes."""
    return ImageTooLargeError(f"more bytes than the limit of {limit} (max_bytes)")
