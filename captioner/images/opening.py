"""Opens images of every supported kind as checked RGB pixels: the only preprocessing code.

Training, export, the server and the command line all use it, so that a model sees at inference what it saw in
training. It neither reads nor sets global state of Pillow: formats are detected by their first bytes and
opened with their own plugin, so that `Image.MAX_IMAGE_PIXELS` and its warnings do not matter, plugins that
run other programs (EPS) are unreachable, and only the needed plugin is imported.
"""

from __future__ import annotations

from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.errors import ImageError, ImageTooLargeError, NotAnImageError
from captioner.images.color import FLAT, flatten, to_srgb, tonal_range
from captioner.images.formats import HEAD_BYTES, detect_format, memory_of, open_format
from captioner.images.letterbox import Letterbox, fit
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.sources import ImageInput, open_stream, to_image

REDUCING_GAP = 3
"""Minimum ratio of source to target size when a large image is decoded at reduced size; from 3 on the
result is almost identical to resizing the whole image."""

_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The transposition that makes an image upright, by EXIF orientation (tag 0x0112)."""

_STRIP_PIXELS = 2**20
_MAX_FACTOR = 64
"""Maximum reduction factor: the fixed-point arithmetic of `reduce` darkens images for factors in the
hundreds."""


def load_pixels(
    source: ImageInput, size: int, limits: ImageLimits = DEFAULT_LIMITS, letterbox: Letterbox | None = None
) -> npt.NDArray[np.uint8]:
    """The model input, as `to_pixels` makes it, from any `ImageInput`.

    It is `to_pixels(open_image(source), size, letterbox)` at a fraction of the cost: a large image is decoded
    at reduced size, which changes pixels by less than half a step of 255 on average. Raises an `ImageError`
    as `open_image` does.
    """
    stored = _read(source, limits, REDUCING_GAP * size, fitted=letterbox is not None)
    return _to_pixels(stored, size, letterbox)


def to_pixels(image: Image.Image, size: int, letterbox: Letterbox | None = None) -> npt.NDArray[np.uint8]:
    """An RGB image squashed to a square, uint8 (size, size, 3), or with `letterbox` fitted into it without
    distortion, uint8 (size, size, 4): the last channel is 255 inside the photo, 0 outside.

    Never cropped, so that attention maps cover the whole image.
    """
    return _to_pixels(_Stored(image, (0, 0, *image.size), image.size, 1), size, letterbox)


def open_image(
    source: ImageInput, limits: ImageLimits = DEFAULT_LIMITS, target: int | None = None
) -> Image.Image:
    """Open an image as a new upright RGB image in sRGB, over white where it is transparent.

    `target` is the smallest useful side in pixels. A larger image is reduced by a whole number while it is
    read (a JPEG while it is decoded), with both sides at or above `target`; memory is then bounded by one
    decoded copy, so give it wherever possible. Of an animation the first frame is used; a Pillow image is not
    modified.

    Raises `ImageUnreadableError`, `NotAnImageError` (also for damaged and truncated files) or
    `ImageTooLargeError`, with a one-line reason that does not repeat the path. Thread-safe.
    """
    stored = _read(source, limits, target)
    return _turn(stored.rgb, stored.orientation)


class _Stored(NamedTuple):
    """An image as stored, reduced but not yet upright."""

    rgb: Image.Image
    extent: tuple[float, float, float, float]
    """The box of `rgb` that the image fills: the last row and column may extend beyond the image if its
    sides are not multiples of the reduction."""
    size: tuple[int, int]
    """Width and height before the reduction."""
    orientation: int


def _read(source: ImageInput, limits: ImageLimits, target: int | None, *, fitted: bool = False) -> _Stored:
    """The smallest useful side is `target`; of an image that is to be `fitted` into a square it is the longer
    one."""
    try:
        if isinstance(source, np.ndarray):
            source = to_image(source)
        if isinstance(source, Image.Image):
            _check_pixels(source, limits)
            return _reduce_to_rgb(source, source.size, _least(source.size, target, fitted))
        with open_stream(source, limits) as stream:
            return _decode(stream, limits, target, fitted)
    except ImageError:
        raise
    except (MemoryError, Image.DecompressionBombError) as error:
        raise ImageTooLargeError("the image needs more memory than it may have") from error
    except Exception as error:  # whatever a hostile image makes Pillow raise, and it raises many kinds
        raise NotAnImageError("the image cannot be used") from error


def _least(size: tuple[int, int], target: int | None, fitted: bool) -> tuple[int, int] | None:
    """The smallest useful width and height of an image of `size`; None if it may not be reduced."""
    if target is None:
        return None
    return fit(*size, target) if fitted else (target, target)


def _decode(stream: IO[bytes], limits: ImageLimits, target: int | None, fitted: bool) -> _Stored:
    head = stream.read(HEAD_BYTES)
    stream.seek(0)
    name = detect_format(head, limits.formats)
    try:
        image = open_format(name, stream)
        _check_pixels(image, limits)
        size = image.size
        least = _least(size, target, fitted)
        if least:
            image.draft(None, least)  # JPEG only: the decoder itself gives 1/2, 1/4 or 1/8
        _check_memory(memory_of(name, image, size), limits)
        return _reduce_to_rgb(image, size, least)
    except (ImageError, MemoryError, Image.DecompressionBombError):
        raise
    except Exception as error:
        raise NotAnImageError(f"the {name} data are damaged, cut short or of a rare kind") from error


def _check_pixels(image: Image.Image, limits: ImageLimits) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise NotAnImageError(f"the image has no pixels ({width} x {height})")
    if width * height > limits.max_pixels:
        raise ImageTooLargeError(
            f"{width} x {height} is more pixels than the limit of {limits.max_pixels} (max_pixels)"
        )


def _check_memory(count: int, limits: ImageLimits) -> None:
    if count > limits.max_memory:
        raise ImageTooLargeError(
            f"decoding takes {count} bytes of memory, more than the limit of {limits.max_memory} (max_memory)"
        )


def _reduce_to_rgb(image: Image.Image, full_size: tuple[int, int], least: tuple[int, int] | None) -> _Stored:
    image.load()  # only now do PNG and TIFF know all of their metadata
    factor = 1
    if least:
        factor = min(max(1, min(image.width // least[0], image.height // least[1])), _MAX_FACTOR)
    drafted = round(full_size[0] / image.width)
    scale = drafted * factor
    rgb = to_srgb(_reduce(image, factor), image.info.get("icc_profile"))
    extent = (0, 0, full_size[0] / scale, full_size[1] / scale)
    return _Stored(rgb, extent, full_size, _orientation(image))


def _to_pixels(stored: _Stored, size: int, letterbox: Letterbox | None) -> npt.NDArray[np.uint8]:
    if letterbox is None:
        return np.array(_turn(_resize(stored, (size, size)), stored.orientation), dtype=np.uint8)
    photo = _turn(_resize(stored, fit(*stored.size, size)), stored.orientation)
    square = Image.new("RGBA", (size, size), (*letterbox.color, 0))
    left, top = (letterbox.begin(length, size) for length in photo.size)
    square.paste(photo.convert("RGBA"), (left, top))
    return np.array(square, dtype=np.uint8)


def _resize(stored: _Stored, size: tuple[int, int]) -> Image.Image:
    # Pillow's filters widen with the reduction, which is antialiasing.
    how = Image.Resampling.BICUBIC
    return stored.rgb.resize(size, how, stored.extent, reducing_gap=float(REDUCING_GAP))


def _turn(image: Image.Image, orientation: int) -> Image.Image:
    transpose = _TRANSPOSE.get(orientation)
    return image if transpose is None else image.transpose(transpose)


def _reduce(image: Image.Image, factor: int) -> Image.Image:
    """The image in mode L, RGB or CMYK, each side divided by `factor` and rounded up.

    Works in strips: beside the decoded image there is never a second copy of its size, whatever conversions
    its mode needs.
    """
    if factor == 1 and image.mode in FLAT and not image.has_transparency_data:
        image.load()  # damage shows here
        return image
    width, height = image.size
    rows = factor * max(1, _STRIP_PIXELS // (width * factor))
    strips = [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]
    tones = tonal_range(image, strips)
    reduced: Image.Image | None = None
    for box in strips:
        strip = flatten(image.crop(box), tones).reduce(factor)
        if reduced is None:
            reduced = Image.new(strip.mode, (strip.width, -(-height // factor)))
        reduced.paste(strip, (0, box[1] // factor))
    assert reduced is not None
    return reduced


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # damaged metadata do not make a good picture bad
        return 1
