"""The drawing surface of still and moving pictures: page colours, text, bars, photos."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from captioner.maps.saliency import colorize
from captioner.overlay import text as texts

PAPER, INK, MUTED, RULE, BAR = "#ffffff", "#1c1b1a", "#6f6c67", "#e6e3de", "#3f3c38"


class Canvas:
    """A picture with drawing methods; the origin is top left, and all lengths are in pixels."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height), PAPER)
        self._draw = ImageDraw.Draw(self.image)

    def text(
        self, x: float, baseline: float, text: str, size: int, color: str = INK, anchor: str = "ls"
    ) -> None:
        """Draw one line of text with its baseline at `baseline`; `anchor` is one of Pillow's."""
        self._draw.text((x, baseline), text, color, texts.font_for(text, size), anchor=anchor)

    def truncated(
        self, x: float, baseline: float, text: str, size: int, width: float, color: str = INK
    ) -> None:
        """Draw text that is cut to `width`."""
        self.text(x, baseline, texts.truncate(text, texts.font_for(text, size), width), size, color)

    def photo(self, x: int, y: int, photo: Image.Image, radius: int) -> None:
        """Paste a photo with rounded corners and a hairline, which shows where a white photo ends."""
        mask = rounded_mask(photo.size, radius)
        if min(photo.size) <= 2 * max(radius, 1):
            self.image.paste(photo, (x, y), mask)
            return
        self.image.paste(RULE, (x, y, x + photo.width, y + photo.height), mask)
        inner = photo.crop((1, 1, photo.width - 1, photo.height - 1))
        self.image.paste(inner, (x + 1, y + 1), rounded_mask(inner.size, radius - 1))

    def bar(self, x: float, y: float, width: float, share: float, thickness: int) -> None:
        """A track of `width` filled to `share`, 0 to 1."""
        self.rectangle(x, y, width, thickness, RULE)
        if share > 0:
            self.rectangle(x, y, width * share, thickness, BAR)

    def rectangle(self, x: float, y: float, width: float, height: float, color: str) -> None:
        left, top = round(x), round(y)
        right, bottom = left + max(1, round(width)) - 1, top + max(1, round(height)) - 1
        self._draw.rectangle((left, top, right, bottom), color)

    def color_bar(self, x: int, y: int, width: int, height: int, colormap: str) -> None:
        """The colours of a colour map from none to most."""
        values = np.linspace(0, 1, max(width, 2), dtype=np.float32)
        ramp = Image.fromarray(colorize(np.tile(values, (max(height, 1), 1)), colormap))
        self.image.paste(ramp, (x, y), rounded_mask(ramp.size, height // 2))


def text_width(text: str, size: int) -> float:
    """The width of a line of text in pixels."""
    return float(texts.font_for(text, size).getlength(text))


def rounded_mask(size: tuple[int, int], radius: int) -> Image.Image:
    """A mask with smooth rounded corners."""
    radius = min(radius, min(size) // 2)
    mask = Image.new("L", size, 255)
    if radius < 1:
        return mask
    corner = Image.new("L", (radius * 8, radius * 8), 0)
    ImageDraw.Draw(corner).ellipse((0, 0, radius * 8 - 1, radius * 8 - 1), 255)
    disc = corner.resize((radius * 2, radius * 2), Image.Resampling.BOX)
    right, bottom = size[0] - radius, size[1] - radius
    for x, left in ((0, 0), (right, radius)):
        for y, top in ((0, 0), (bottom, radius)):
            mask.paste(disc.crop((left, top, left + radius, top + radius)), (x, y))
    return mask
