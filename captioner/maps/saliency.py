"""Attention maps as pictures: resampled, coloured and laid over a photo.

The pure primitives (numpy and Pillow) that the overlays of the client, the notebook and the terminal
share. A map is (rows, columns) over the whole image, so cell (r, c) covers the rectangle from
(r / rows, c / columns) to ((r + 1) / rows, (c + 1) / columns) of it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance

from captioner.maps.colors import DEFAULT_ALPHA, DEFAULT_COLORMAP, STOPS

Map = npt.NDArray[np.float32]

FAINTEST_PEAK = 3.0
"""A map reaches full colour at its peak, or at this multiple of the uniform weight if its peak is lower:
the map of a word that looked everywhere stays faint instead of showing amplified noise."""
OPACITY_EXPONENT = 0.7
"""Below 1, small peaks get a wide rim, which makes them visible on any photo."""


def resample(weights: npt.ArrayLike, size: tuple[int, int], shift: tuple[float, float] = (0.0, 0.0)) -> Map:
    """Resample a map (rows, columns) smoothly to `size` (height, width), float32.

    A uniform cubic B-spline through cell centres: never negative, no ringing, and the weight of a cell stays
    centred on its pixels. `shift` moves the map down and right, in cells.
    """
    values = np.asarray(weights, dtype=np.float32)
    down = _spline(values.shape[0], size[0], shift[0])
    across = _spline(values.shape[1], size[1], shift[1])
    return np.asarray(down @ values @ across.T, dtype=np.float32)


def _spline(cells: int, pixels: int, shift: float) -> Map:
    """Matrix (pixels, cells): the contribution of each cell to each pixel; rows sum to 1."""
    width = max(1.0, cells / pixels)  # a map larger than the picture is averaged, not picked from
    centres = (np.arange(pixels) + 0.5) * cells / pixels - 0.5 - shift
    margin = int(np.ceil(2 * width + abs(shift))) + 1
    distance = np.abs(centres[:, None] - np.arange(-margin, cells + margin)[None]) / width
    basis = np.where(distance < 1, 2 / 3 - distance**2 + distance**3 / 2, (2 - distance).clip(0) ** 3 / 6)
    # Beyond its border the map continues with the border's values.
    matrix = basis[:, margin : margin + cells].copy()
    matrix[:, 0] += basis[:, :margin].sum(axis=1)
    matrix[:, -1] += basis[:, margin + cells :].sum(axis=1)
    return (matrix / matrix.sum(axis=1, keepdims=True)).astype(np.float32)


def relative(weights: npt.ArrayLike, size: tuple[int, int], shift: tuple[float, float] = (0.0, 0.0)) -> Map:
    """The map at `size` (height, width) as displayed, float32: 0 where the weight is average or less, 1 at
    the peak (see `FAINTEST_PEAK`)."""
    floor, peak = display_range(weights)
    values = (resample(weights, size, shift) - floor) / (peak - floor)
    return np.clip(values, 0, 1).astype(np.float32)


def display_range(weights: npt.ArrayLike) -> tuple[float, float]:
    """The smoothed weights at which colour begins and at which it is full."""
    values = np.asarray(weights, dtype=np.float32)
    floor, peak = float(values.mean()), float(_smooth(values).max())
    return floor, max(peak, min(1.0, FAINTEST_PEAK / values.size), floor + 1e-6)


def gaze(weights: npt.ArrayLike) -> tuple[float, float]:
    """The most attended position (y, x), from 0 to 1, after smoothing."""
    smooth = _smooth(np.asarray(weights, dtype=np.float32))
    y, x = np.unravel_index(int(smooth.argmax()), smooth.shape)
    return (float(y) + 0.5) / smooth.shape[0], (float(x) + 0.5) / smooth.shape[1]


def _smooth(values: Map) -> Map:
    rows, columns = values.shape
    return resample(values, (3 * rows, 3 * columns))  # odd, so centres are sampled


def stops(colormap: str) -> list[tuple[int, int, int]]:
    """The 33 evenly spread colours (red, green, blue) that define a colour map, lowest first."""
    table = bytes.fromhex(STOPS[colormap])
    return [(table[i], table[i + 1], table[i + 2]) for i in range(0, len(table), 3)]


@cache
def _table(colormap: str) -> npt.NDArray[np.uint8]:
    colors = np.asarray(stops(colormap), dtype=np.float64)
    positions = np.linspace(0, 255, len(colors))
    channels = [np.interp(np.arange(256), positions, colors[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=1).round().astype(np.uint8)


def colorize(values: npt.ArrayLike, colormap: str) -> npt.NDArray[np.uint8]:
    """Map values from 0 to 1, of any shape, to colours, uint8 (..., 3)."""
    indices = (np.asarray(values) * 255).round().clip(0, 255).astype(np.uint8)
    return _table(colormap)[indices]


def blend(
    photo: Image.Image, values: Map, colormap: str = DEFAULT_COLORMAP, alpha: float = DEFAULT_ALPHA
) -> Image.Image:
    """Blend the colours of `values` (height, width), 0 to 1, over an RGB photo of that size: opacity grows
    with the value, from 0 to `alpha`."""
    opacity = (np.asarray(values) ** OPACITY_EXPONENT * alpha)[..., None]
    pixels = np.asarray(photo, dtype=np.float32)
    mixed = pixels * (1 - opacity) + colorize(values, colormap) * opacity
    return Image.fromarray(mixed.round().astype(np.uint8))


def mute(photo: Image.Image) -> Image.Image:
    """Mute the colours of an RGB photo, so that they are not mistaken for attention."""
    return ImageEnhance.Brightness(ImageEnhance.Color(photo).enhance(0.35)).enhance(0.72)


def fit_photo(photo: Image.Image, width: int, height: int) -> Image.Image:
    """Scale the whole photo to fit into `width` by `height`, at least 1 pixel in each direction."""
    scale = min(width / photo.width, height / photo.height)
    size = (max(1, round(photo.width * scale)), max(1, round(photo.height * scale)))
    return photo.resize(size, Image.Resampling.LANCZOS if scale < 1 else Image.Resampling.BICUBIC)
