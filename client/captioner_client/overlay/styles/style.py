"""What a style is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PIL import Image

from captioner.saliency import Map
from captioner_client.overlay.scene import OverlayOptions


@dataclass(frozen=True, slots=True)
class Style:
    """A way to paint a map over a photo."""

    paint: Callable[[Image.Image, Map, OverlayOptions], Image.Image]
    """(RGB photo, values 0 to 1 of (height, width) as the photo, options) to a picture of the same size."""
    legend: str
    """What the reader sees, in a few words."""
    shows_colormap: bool = True
    """Whether a colour bar belongs beside the legend."""
