"""Contour lines around the smallest areas that hold 25, 50 and 75 % of the attention."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from captioner.maps.saliency import FAINTEST_PEAK, Map, colorize, resample
from captioner.overlay.scene import OverlayOptions
from captioner.overlay.styles.style import Style

SHARES = (0.75, 0.5, 0.25)


def _paint(photo: Image.Image, values: Map, options: OverlayOptions) -> Image.Image:
    pixels = np.asarray(photo, dtype=np.float32)
    line_width = max(1.5, min(values.shape) / 110)
    lines = levels(values)
    # A map without a peak draws faint lines.
    opacity = options.alpha * min(1.0, lines[-1] / FAINTEST_PEAK / max(float(values.mean()), 1e-9))
    for level, tone in zip(lines, (0.55, 0.78, 1.0), strict=True):
        color = colorize(np.float32(tone), options.colormap).astype(np.float32)
        inside = (values >= level)[..., None] * 0.12 * opacity
        pixels = pixels * (1 - inside) + color * inside
        distance = np.where(
            _near(values >= level, round(1.2 * line_width) + 1), _distance(values, level), np.inf
        )
        for width, ink in ((2.4 * line_width, np.zeros(3, np.float32)), (line_width, color)):
            coverage = (np.clip(width / 2 + 0.5 - distance, 0, 1) * opacity)[..., None]
            pixels = pixels * (1 - coverage) + ink * coverage
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))


def levels(values: Map) -> list[float]:
    """The levels above which 75, 50 and 25 % of the weight lies."""
    descending = np.sort(values, axis=None)[::-1]
    mass = np.cumsum(descending, dtype=np.float64)
    places = np.searchsorted(mass, [share * mass[-1] for share in SHARES])
    return [float(descending[min(place, descending.size - 1)]) for place in places]


def _distance(values: Map, level: float) -> Map:
    """Distance of each pixel to the line where the map crosses `level`, in pixels, to first order."""
    if min(values.shape) < 2:
        return np.full_like(values, np.inf)
    down, across = np.gradient(values)
    return np.abs(values - level) / np.maximum(np.hypot(down, across), 1e-6)


def _near(inside: npt.NDArray[np.bool_], reach: int) -> npt.NDArray[np.bool_]:
    """The pixels that have others both inside and outside within `reach` rows and columns. `_distance` finds
    lines also around peaks that almost reach the level, where there are none."""
    least, most = inside, inside
    for axis in (0, 1):
        padding = [(reach, reach) if axis == other else (0, 0) for other in (0, 1)]
        least, most = (
            reduce(sliding_window_view(np.pad(part, padding, "edge"), 2 * reach + 1, axis), axis=-1)
            for part, reduce in ((least, np.all), (most, np.any))
        )
    return most & ~least


STYLE = Style(
    legend="Lines: the areas that hold 25, 50 and 75 % of the attention",
    paint=_paint,
    shows_colormap=False,
    field=resample,  # shares are of all weight, also of what `relative` leaves out
)
