"""Renders a caption over its photo as a still picture."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from captioner.images.opening import DEFAULT_LIMITS, ImageInput, ImageLimits
from captioner.overlay.figure import draw_figure
from captioner.overlay.scene import DEFAULT_WIDTH, OverlayOptions, check_style, make_scene
from captioner.overlay.styles import PAINTED, STYLES
from captioner.overlay.styles.matrix import draw_matrix
from captioner.results import Caption


def render_overlay(
    image: ImageInput,
    caption: Caption,
    style: str = "panels",
    *,
    words: Sequence[int] | None = None,
    colormap: str = "inferno",
    alpha: float = 0.8,
    width: int | None = None,
    limits: ImageLimits = DEFAULT_LIMITS,
) -> Image.Image:
    """Draw where the model looked for each word; an RGB picture `width` (1600) pixels wide.

    `style` is one of `STYLES`: "panels" (colour over the photo, opacity by weight), "heatmap" (the whole map
    over the photo in grey), "contour", "spotlight", or "matrix" (words by cells). `words` are positions in
    `caption.words`, from 0; see `OverlayOptions` for the rest. Photos beyond `limits` are rejected before
    they are decoded.

    Raises `OptionsError` for options out of range, `DataError` for a caption without attention maps, and an
    `ImageError` for an image that cannot be opened.
    """
    options = OverlayOptions(words=words, colormap=colormap, alpha=alpha, width=width)
    check_style(style, STYLES)
    scene = make_scene(image, caption, options, DEFAULT_WIDTH, limits)
    return draw_matrix(scene) if style == "matrix" else draw_figure(scene, PAINTED[style])
