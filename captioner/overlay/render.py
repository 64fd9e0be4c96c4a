"""Renders a caption over its photo as a still picture."""

from __future__ import annotations

from typing import Any

from PIL import Image

from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.sources import ImageInput
from captioner.overlay.figure import draw_figure
from captioner.overlay.scene import DEFAULT_WIDTH, OverlayOptions, make_scene
from captioner.overlay.styles import DEFAULT_STYLE, find_style
from captioner.results import Caption


def render_overlay(
    image: ImageInput,
    caption: Caption,
    style: str = DEFAULT_STYLE,
    options: OverlayOptions | None = None,
    *,
    limits: ImageLimits = DEFAULT_LIMITS,
    **fields: Any,
) -> Image.Image:
    """Draw where the model looked for each word; an RGB picture, 1600 pixels wide unless `options` say
    otherwise.

    `style` is one of `captioner.overlay.styles.STYLES`: "panels" (colour over the photo, opacity by weight),
    "heatmap" (the whole map over the photo in grey), "contour", "spotlight", or "matrix" (words by cells).
    Options are given as `OverlayOptions`, as keywords (`width=800`), or both. Photos beyond `limits` are
    rejected before they are decoded.

    Raises `OptionsError` for options out of range, `DataError` for a caption without attention maps, and an
    `ImageError` for an image that cannot be opened.
    """
    options, how = OverlayOptions.merge(options, fields), find_style(style, "picture")
    scene = make_scene(image, caption, options, DEFAULT_WIDTH, limits)
    return how.draw(scene) if how.draw is not None else draw_figure(scene, how)
