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

Map = npt.NDArray[np.float32]

FAINTEST_PEAK = 3.0
"""A map reaches full colour at its peak, or at this multiple of the uniform weight if its peak is lower:
the map of a word that looked everywhere stays faint instead of showing amplified noise."""
OPACITY_EXPONENT = 0.7
"""Below 1, small peaks get a wide rim, which makes them visible on any photo."""

# 33 stops of each table of 256, spread evenly; linear interpolation is within 2 of 255 of the original
# (6 for cividis). viridis, magma and inferno: N. Smith, S. van der Walt and E. Firing, dedicated to the
# public domain (CC0). cividis: Nunez, Anderton and Renslow 2018, doi:10.1371/journal.pone.0199239 (CC0).
_STOPS = {
    "viridis": (
        "440154470d6048186a482374472d7b4537814240863e49893b528b375b8d33638d2f6b8e2c728e297a8e26828e23898e21908c"
        "1f978b1f9f8821a68527ad8131b57b3ebc744dc26c5cc8636ece5882d34d95d840aadc32c0df25d5e21aeae51afde725"
    ),
    "magma": (
        "0000040303120a0822130d341d114729115a36106b440f7650127c5d177f691c817621818226818f2a819c2e7fa9337db6367a"
        "c33b75cf4070db476ae65164ee5c5ef46a5cf9785dfb8861fd9668fea571feb47bfec287fed194fde0a1fceeb0fcfdbf"
    ),
    "inferno": (
        "0000040403120b0724150b37210c4a2f0a5b3d09654a0c6b56106e63156e70196e7d1e6d89226a962766a32c61af315bbb3654"
        "c63d4dd14545da4f3ce35932eb6529f1721ef67f14f98c0afb9b06fcaa0ffbba1ff9c932f5d949f2e865f3f586fcffa4"
    ),
    "cividis": (
        "00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d5a5f6e61656f686a716f70737676767c7c78"
        "8381798b8778928d789a9376a29975aaa073b3a670bbad6dc3b369ccba64d4c15fddc858e6d051efd748f8df3cfee838"
    ),
}
COLORMAPS = tuple(_STOPS)


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
    rows, columns = values.shape
    smooth_peak = float(resample(values, (3 * rows, 3 * columns)).max())  # odd, so centres are sampled
    floor = float(values.mean())
    return floor, max(smooth_peak, min(1.0, FAINTEST_PEAK / values.size), floor + 1e-6)


def gaze(weights: npt.ArrayLike) -> tuple[float, float]:
    """The most attended position (y, x), from 0 to 1, after smoothing."""
    values = np.asarray(weights, dtype=np.float32)
    rows, columns = values.shape
    smooth = resample(values, (3 * rows, 3 * columns))
    y, x = np.unravel_index(int(smooth.argmax()), smooth.shape)
    return (float(y) + 0.5) / smooth.shape[0], (float(x) + 0.5) / smooth.shape[1]


def stops(colormap: str) -> list[tuple[int, int, int]]:
    """The 33 evenly spread colours (red, green, blue) that define a colour map, lowest first."""
    table = bytes.fromhex(_STOPS[colormap])
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


def blend(photo: Image.Image, values: Map, colormap: str, alpha: float) -> Image.Image:
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
