"""What a style is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from captioner.overlay.saliency import Map, relative
from captioner.overlay.scene import OverlayOptions

Field = Callable[[Map, tuple[int, int], tuple[float, float]], Map]
"""(map, (height, width), shift in cells) to a field, as `resample` and `relative` of
`captioner.overlay.saliency` make one."""


@dataclass(frozen=True, slots=True)
class Style:
    """A way to paint a map over a photo."""

    paint: Callable[[Image.Image, Map, OverlayOptions], Image.Image]
    """(RGB photo, field of (height, width) as the photo, options) to a picture of the same size."""
    legend: str
    """What the reader sees, in a few words."""
    shows_colormap: bool = True
    """Whether a colour bar belongs beside the legend."""
    field: Field = relative
    """What `paint` is given."""
