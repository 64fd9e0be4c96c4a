"""The standard: colour and opacity grow with the weight, over a photo that is muted a little."""

from __future__ import annotations

from PIL import Image, ImageEnhance

from captioner.saliency import Map, blend
from captioner_client.overlay.scene import OverlayOptions
from captioner_client.overlay.styles.style import Style

SATURATION, BRIGHTNESS = 0.45, 0.92  # so that a red coat is not taken for attention


def _paint(photo: Image.Image, values: Map, options: OverlayOptions) -> Image.Image:
    muted = ImageEnhance.Brightness(ImageEnhance.Color(photo).enhance(SATURATION)).enhance(BRIGHTNESS)
    return blend(muted, values, options.colormap, options.alpha)


STYLE = Style(_paint, "Colour: where the model looked for the word, from none to most")
