"""The interface of overlay styles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from captioner.maps.saliency import Map, relative
from captioner.overlay.scene import OverlayOptions

Field = Callable[[Map, tuple[int, int], tuple[float, float]], Map]
"""Turns (map, (height, width), shift in cells) into a field, as `resample` and `relative` of
`captioner.maps.saliency` do."""


@dataclass(frozen=True, slots=True)
class Style:
    """A way to paint a map over a photo."""

    paint: Callable[[Image.Image, Map, OverlayOptions], Image.Image]
    """Turns (RGB photo, field of its (height, width), options) into a picture of the same size."""
    legend: str
    """A short description for the legend."""
    shows_colormap: bool = True
    """Whether the legend includes a colour bar."""
    field: Field = relative
    """Computes the field for `paint`."""
