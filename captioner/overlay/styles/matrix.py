"""The alignment plot of the attention literature: one row per word, one column per grid cell.

After Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), with image cells in place of source words. Cells are in
row-major order; the photo beside the caption shows the row numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from captioner.maps.saliency import colorize, fit_photo
from captioner.overlay.canvas import MUTED, RULE, Canvas, text_width
from captioner.overlay.scene import DEFAULT_WIDTH, Scene, ShownWord
from captioner.overlay.styles.style import Style
from captioner.overlay.text import font_for, wrap
from captioner.printable import clean


def draw_matrix(scene: Scene) -> Image.Image:
    """The weights of all words over all cells, on one scale."""
    sizes = _Sizes.of_width(scene.options.width or DEFAULT_WIDTH)
    header = _draw_header(scene, sizes)
    line_height = round(1.7 * sizes.text)
    top = header.height + sizes.text + round(1.6 * sizes.small)
    bottom = top + line_height * len(scene.words)
    canvas = Canvas(sizes.width, bottom + round(2.2 * sizes.text) + sizes.margin)
    canvas.image.paste(header, (0, 0))

    labels = max(text_width(clean(word.text), sizes.text) for word in scene.words) + sizes.text
    left = sizes.margin + min(sizes.width // 4, round(labels))
    width = sizes.width - sizes.margin - round(text_width("100%", sizes.small)) - sizes.text // 2 - left
    rows = scene.words[0].attention.shape[0]
    group = width / rows
    for row in _numbered(rows, group, 1.5 * text_width("00", sizes.small)):
        middle, baseline = left + (row + 0.5) * group, top - sizes.small // 2
        canvas.text(middle, baseline, str(row + 1), sizes.small, MUTED, anchor="ms")
    for place, word in enumerate(scene.words):
        y = top + place * line_height
        canvas.image.paste(_strip(word, _largest(scene), scene, (width, line_height - 2)), (left, y))
        baseline = y + round(line_height / 2 + 0.33 * sizes.text)
        room = left - sizes.margin - sizes.text / 2
        canvas.truncated(sizes.margin, baseline, clean(word.text) or "(empty)", sizes.text, room)
        percent = f"{word.probability:.0%}"
        canvas.text(sizes.width - sizes.margin, baseline, percent, sizes.small, MUTED, anchor="rs")
    for row in range(1, rows):
        canvas.rectangle(left + row * group, top, 1, bottom - top - 2, RULE)
    baseline = bottom + round(1.8 * sizes.text)
    model = clean(scene.caption.model)
    canvas.text(sizes.width - sizes.margin, baseline, model, sizes.small, MUTED, anchor="rs")
    return canvas.image


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of a plot of a given width, in pixels."""

    width: int
    margin: int
    headline: int
    text: int
    small: int

    @classmethod
    def of_width(cls, width: int) -> _Sizes:
        text = max(13, round(width / 75))
        return cls(width, max(12, width // 40), max(16, round(width / 50)), text, max(11, round(text * 0.75)))


def _draw_header(scene: Scene, sizes: _Sizes) -> Image.Image:
    """Draw the photo with numbered rows and, beside it, the caption and the colour scale."""
    rows, columns = scene.words[0].attention.shape
    photo = fit_photo(scene.photo, sizes.width // 4, sizes.width // 4)
    photo_left = sizes.margin + round(text_width("00", sizes.small)) + sizes.small // 2
    left = photo_left + photo.width + 2 * sizes.text
    room = sizes.width - sizes.margin - left
    caption = clean(scene.caption.text) or "(no words)"
    lines = wrap(caption, font_for(caption, sizes.headline), room)
    scale_top = sizes.margin + round(1.3 * len(lines) * sizes.headline) + sizes.text
    canvas = Canvas(sizes.width, max(sizes.margin + photo.height, scale_top + 3 * sizes.text))

    canvas.photo(photo_left, sizes.margin, photo, 0)
    band = photo.height / rows
    for row in _numbered(rows, band, 1.4 * sizes.small):
        middle = sizes.margin + (row + 0.5) * band
        canvas.text(photo_left - sizes.small // 2, middle, str(row + 1), sizes.small, MUTED, anchor="rm")
    for row in range(1, rows):
        canvas.rectangle(photo_left, sizes.margin + row * band, photo.width, 1, RULE)
    for number, line in enumerate(lines):
        baseline = sizes.margin + round((1.3 * number + 0.85) * sizes.headline)
        canvas.text(left, baseline, line, sizes.headline)
    bar = 8 * sizes.text
    canvas.color_bar(left, scale_top, bar, round(0.7 * sizes.text), scene.options.colormap)
    scale = f"0 to {_largest(scene):.1%} of a word's attention"
    indent = bar + sizes.text
    baseline = scale_top + round(0.65 * sizes.text)
    canvas.truncated(left + indent, baseline, scale, sizes.small, room - indent, MUTED)
    note = f"A row for each word, a column for each cell of the {rows} by {columns} grid, row by row"
    canvas.truncated(left, scale_top + round(2.2 * sizes.text), note, sizes.small, room, MUTED)
    return canvas.image


def _strip(word: ShownWord, largest: float, scene: Scene, size: tuple[int, int]) -> Image.Image:
    """The cells of one word as a row of `size` (width, height)."""
    colors = colorize((word.attention / largest).reshape(1, -1), scene.options.colormap)
    is_narrow = size[0] < colors.shape[1]
    how = Image.Resampling.BOX if is_narrow else Image.Resampling.NEAREST
    return Image.fromarray(np.ascontiguousarray(colors)).resize(size, how)


def _largest(scene: Scene) -> float:
    return max(float(word.attention.max()) for word in scene.words) or 1.0


def _numbered(count: int, pitch: float, needed: float) -> range:
    """Which of `count` positions, `pitch` pixels apart, have room for a number."""
    return range(0, count, max(1, math.ceil(needed / pitch)))


STYLE = Style(draw=draw_matrix)
