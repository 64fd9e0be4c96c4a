"""The default style: colour and opacity grow with the weight, over a slightly muted photo."""

from __future__ import annotations

from PIL import Image

from captioner.maps.saliency import Map, blend, mute
from captioner.overlay.scene import OverlayOptions
from captioner.overlay.styles.style import Style


def _paint(photo: Image.Image, values: Map, options: OverlayOptions) -> Image.Image:
    return blend(mute(photo), values, options.colormap, options.alpha)


STYLE = Style(
    legend="Colour: where the model looked, from average to most",
    paint=_paint,
    page_mode="heat",
)
