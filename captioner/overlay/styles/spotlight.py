"""A darkened photo, lit where the model looked."""

from __future__ import annotations

import numpy as np
from PIL import Image

from captioner.maps.saliency import Map
from captioner.overlay.scene import OverlayOptions
from captioner.overlay.styles.style import Style


def _paint(photo: Image.Image, values: Map, options: OverlayOptions) -> Image.Image:
    color = np.asarray(photo, dtype=np.float32)
    grey = np.asarray(photo.convert("L"), dtype=np.float32)[..., None]
    light = np.sqrt(values)[..., None]  # closer to how bright the eye finds it
    dark = grey * (1 - options.alpha)
    return Image.fromarray((dark + (color - dark) * light).round().clip(0, 255).astype(np.uint8))


STYLE = Style(
    legend="Lit: where the model looked",
    paint=_paint,
    page_mode="spotlight",
    shows_colormap=False,
)
