"""Converts the pixel formats of image files to 8-bit sRGB."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from PIL.ImageCms import ImageCmsTransform

MAX_PROFILE_BYTES = 4 * 2**20
"""Larger ICC profiles are ignored; profiles for print have half a megabyte to three."""

_PHOTOMETRIC = 262
"""The tag of TIFF that says what values mean: 0 where zero is white, which Pillow heeds up to 8 bits."""

FLAT = ("L", "RGB", "CMYK")
"""Modes of opaque 8-bit images."""

Box = tuple[int, int, int, int]


def flatten(image: Image.Image, tones: tuple[float, float] | None = None) -> Image.Image:
    """An opaque 8-bit image of mode L, RGB or CMYK. `tones` is the result of `tonal_range`.

    Transparency becomes white: transparent images (logos, line art, screenshots) are mostly dark and made for
    white pages.
    """
    if tones is not None:
        return _scale(image, *tones)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        opaque = Image.alpha_composite(white, image.convert("RGBA"))
        return opaque.convert("L" if image.mode in ("L", "LA", "La") else "RGB")  # as the profile expects it
    if image.mode in FLAT:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def tonal_range(image: Image.Image, boxes: Sequence[Box]) -> tuple[float, float] | None:
    """The values of black and white in a grey image of more than 8 bits per pixel; None for other images.

    16-bit images use the whole range, some from white to black, as X-ray scanners do. 32-bit integers and
    floats have no standard white: it is the first of 1, 255 and 65535 that no value exceeds, else the largest
    value. Looks at one of `boxes` at a time.
    """
    if image.mode.startswith("I;16"):
        return (65535.0, 0.0) if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0 else (0.0, 65535.0)
    if image.mode not in ("I", "F"):
        return None
    low, high = 0.0, 0.0
    for box in boxes:
        values = np.asarray(image.crop(box))
        values = values[np.isfinite(values)]
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    return low, next((white for white in (1.0, 255.0, 65535.0) if high <= white), high)


def _scale(image: Image.Image, low: float, high: float) -> Image.Image:
    values = np.nan_to_num(np.asarray(image).astype(np.float64), nan=low, posinf=high, neginf=low)
    return Image.fromarray(np.rint((values - low) * (255.0 / (high - low))).astype(np.uint8))


def to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Convert an L, RGB or CMYK image to sRGB with its embedded ICC profile, if usable.

    Phones write Display P3 and cameras Adobe RGB; read as sRGB their colours are dull. A damaged profile, or
    one for another colour model, is ignored, as viewers do.
    """
    transform = None
    if profile and len(profile) <= MAX_PROFILE_BYTES:
        transform = _transform(profile, image.mode)
    if transform is not None:
        return transform.apply(image)
    return image if image.mode == "RGB" else image.convert("RGB")


@lru_cache(maxsize=8)  # building one takes longer than applying it to a small image; safe to share
def _transform(profile: bytes, mode: str) -> ImageCmsTransform | None:
    from PIL import ImageCms

    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
        return None if mode == "RGB" and _is_identity(transform) else transform
    except Exception:  # the kinds of error differ by what is wrong with the profile
        return None


def _is_identity(transform: ImageCmsTransform) -> bool:
    """Whether a transform of RGB changes nothing but by rounding: sRGB, by far the most frequent profile. Its
    name does not tell: there is a linear sRGB, too."""
    levels = np.arange(0, 256, 51, dtype=np.uint8)
    colors = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 1, 3)
    changed = np.asarray(transform.apply(Image.fromarray(colors))).astype(int)
    return bool(np.abs(changed - colors).max() <= 2)
