"""Colours for the whole map, evenly over the photo in grey, so that low weights are visible too."""

from __future__ import annotations

import numpy as np
from PIL import Image

from captioner.maps.saliency import Map, colorize
from captioner.overlay.scene import OverlayOptions
from captioner.overlay.styles.style import Style


def _paint(photo: Image.Image, values: Map, options: OverlayOptions) -> Image.Image:
    grey = photo.convert("L").convert("RGB")
    opacity = 0.85 * options.alpha  # the photo must still be seen under the flat colour
    return Image.blend(
        grey, Image.fromarray(np.ascontiguousarray(colorize(values, options.colormap))), opacity
    )


STYLE = Style(
    legend="Colour: where the model looked, from average to most",
    paint=_paint,
)
