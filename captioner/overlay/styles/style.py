"""The interface of overlay styles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from captioner.maps.saliency import Map, relative
from captioner.overlay.scene import OverlayOptions, Scene

Field = Callable[[Map, tuple[int, int], tuple[float, float]], Map]
"""Turns (map, (height, width), shift in cells) into a field, as `resample` and `relative` of
`captioner.maps.saliency` do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """A way to show maps: painted over the photo, in pictures and animations, or as a picture of its own."""

    legend: str = ""
    """A short description for the legend."""
    paint: Callable[[Image.Image, Map, OverlayOptions], Image.Image] | None = None
    """Turns (RGB photo, field of its (height, width), options) into a picture of the same size."""
    draw: Callable[[Scene], Image.Image] | None = None
    """Draws the whole picture, for a style that paints nothing over the photo."""
    page_mode: str | None = None
    """How the page shows it, "heat" or "spotlight"; None for a style that pages do not have."""
    shows_colormap: bool = True
    """Whether the legend includes a colour bar."""
    field: Field = relative
    """Computes the field for `paint`."""
