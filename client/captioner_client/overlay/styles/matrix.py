"""The alignment plot of the attention literature: a row a word, a column a cell of the grid.

After Bahdanau, Cho and Bengio 2015 (arXiv:1409.0473), with image cells in place of source words. The
cells stand row by row; the photo beside the caption carries the numbers of the rows.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from captioner.saliency import colorize, fit_photo
from captioner_client.overlay.canvas import MUTED, RULE, Canvas, text_width
from captioner_client.overlay.figure import DEFAULT_WIDTH
from captioner_client.overlay.scene import Scene
from captioner_client.overlay.text import clean, font_for, wrap


def draw_matrix(scene: Scene) -> Image.Image:
    """Weights of all words over all cells, on one scale."""
    width = scene.options.width or DEFAULT_WIDTH
    size = max(13, round(width / 75))
    small = max(11, round(size * 0.75))
    margin, gap = max(12, width // 40), size
    rows, columns = scene.words[0].attention.shape
    largest = max(float(word.attention.max()) for word in scene.words) or 1.0

    photo = fit_photo(scene.photo, width // 4, width // 4)
    numbers = round(text_width("00", small)) + small // 2
    left = margin + numbers + photo.width + 2 * gap
    caption = clean(scene.caption.text) or "(no words)"
    headline = max(16, round(width / 50))
    lines = wrap(caption, font_for(caption, headline), width - left - margin)

    labels = min(width // 4, round(max(text_width(clean(word.text), size) for word in scene.words)) + gap)
    percents = round(text_width("100%", small)) + gap // 2
    plot_left, plot_width = margin + labels, width - 2 * margin - labels - percents
    line_height = round(1.7 * size)
    header = max(photo.height, round(len(lines) * 1.3 * headline) + 4 * size)
    top = margin + header + gap + round(1.6 * small)
    bottom = top + line_height * len(scene.words)
    canvas = Canvas(width, bottom + round(2.2 * size) + margin)

    canvas.photo(margin + numbers, margin, photo, 0)
    band = photo.height / rows
    every = max(1, round(1.4 * small / band + 0.49))
    for row in range(0, rows, every):
        middle = margin + (row + 0.5) * band
        canvas.text(margin + numbers - small // 2, middle, str(row + 1), small, MUTED, anchor="rm")
    for row in range(1, rows):
        canvas.rectangle(margin + numbers, margin + row * band, photo.width, 1, RULE)
    for number, line in enumerate(lines):
        canvas.text(left, margin + round((1.3 * number + 0.85) * headline), line, headline)
    scale_top = margin + round(1.3 * len(lines) * headline) + size
    canvas.color_bar(left, scale_top, 8 * size, round(0.7 * size), scene.options.colormap)
    room = width - left - margin - 9 * size
    canvas.fitted(
        left + 9 * size,
        scale_top + round(0.65 * size),
        f"0 to {largest:.1%} of a word's attention",
        small,
        room,
        MUTED,
    )
    note = f"A row a word, a column a cell of the {rows} by {columns} grid, row by row of the photo"
    canvas.fitted(left, scale_top + round(2.2 * size), note, small, width - left - margin, MUTED)

    group = plot_width / rows
    every = max(1, round(1.5 * text_width("00", small) / group + 0.49))
    for row in range(0, rows, every):
        canvas.text(
            plot_left + (row + 0.5) * group, top - round(0.5 * small), str(row + 1), small, MUTED, anchor="ms"
        )
    for place, word in enumerate(scene.words):
        y = top + place * line_height
        strip = colorize((word.attention / largest).reshape(1, -1), scene.options.colormap)
        cells = Image.fromarray(np.ascontiguousarray(strip)).resize(
            (plot_width, line_height - 2),
            Image.Resampling.BOX if plot_width < strip.shape[1] else Image.Resampling.NEAREST,
        )
        canvas.image.paste(cells, (plot_left, y))
        middle = y + line_height / 2 + 0.33 * size
        canvas.fitted(margin, middle, clean(word.text) or "(empty)", size, labels - gap / 2)
        canvas.text(width - margin, middle, f"{word.probability:.0%}", small, MUTED, anchor="rs")
    for row in range(1, rows):
        canvas.rectangle(plot_left + row * group, top, 1, bottom - top - 2, RULE)
    model = clean(scene.caption.model)
    canvas.text(width - margin, bottom + round(1.8 * size), model, small, MUTED, anchor="rs")
    return canvas.image
