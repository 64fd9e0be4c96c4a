"""The still figure: the photo, then one panel per word, wrapped into rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from PIL import Image

from captioner.overlay.canvas import MUTED, Canvas, text_width
from captioner.overlay.saliency import fit_photo
from captioner.overlay.scene import Scene, ShownWord
from captioner.overlay.styles.style import Style
from captioner.overlay.text import clean, font_for, wrap

DEFAULT_WIDTH = 1600
MIN_PANEL_WIDTH = 80
MAX_PANEL_ASPECT = 1.6
"""Maximum height over width of a panel; taller photos are fitted into it."""
PLEASANT_ASPECT = 0.62
"""Target height over width of the whole figure."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Positions of the panels in pixels."""

    columns: int
    panel_width: int
    image_height: int
    label_height: int
    margin: int
    gap: int

    @property
    def pitch(self) -> int:
        """Distance from the top of one row of panels to the next."""
        return self.image_height + self.label_height + self.gap


def draw_figure(scene: Scene, style: Style) -> Image.Image:
    """Draw the caption as a headline, the panels and a legend."""
    width = scene.options.width or DEFAULT_WIDTH
    count = len(scene.words) + 1
    has_sentinel = any(word.sentinel is not None for word in scene.words)
    grid = choose_grid(count, width, scene.photo.height / scene.photo.width, has_sentinel)
    headline = max(18, round(width / 46))
    small = max(12, round(width / 110))
    caption = clean(scene.caption.text) or "(no words)"
    lines = wrap(caption, font_for(caption, headline), width - 2 * grid.margin)
    top = grid.margin + round(len(lines) * 1.3 * headline) + grid.gap
    rows = math.ceil(count / grid.columns)
    bottom = top + rows * grid.pitch
    canvas = Canvas(width, bottom + 2 * small + grid.margin)
    for number, line in enumerate(lines):
        canvas.text(grid.margin, grid.margin + round((1.3 * number + 0.95) * headline), line, headline)
    photo = fit_photo(scene.photo, grid.panel_width, grid.image_height)
    radius = max(3, round(grid.panel_width / 60))
    for place in range(count):
        x = grid.margin + (place % grid.columns) * (grid.panel_width + grid.gap)
        y = top + (place // grid.columns) * grid.pitch
        picture = photo
        if place > 0:
            word = scene.words[place - 1]
            field = style.field(word.attention, (photo.height, photo.width), (0.0, 0.0))
            picture = style.paint(photo, field, scene.options)
            _draw_label(canvas, x, y + grid.image_height, grid, word)
        else:
            size = label_size(grid.panel_width)
            baseline = y + grid.image_height + round(1.25 * size)
            canvas.fitted(x, baseline, "the photo", size, grid.panel_width, MUTED)
        canvas.photo(
            x + (grid.panel_width - photo.width) // 2,
            y + (grid.image_height - photo.height) // 2,
            picture,
            radius,
        )
    _draw_legend(canvas, scene, style, bottom + 2 * small, small, grid.margin)
    return canvas.image


def choose_grid(count: int, width: int, aspect: float, has_sentinel: bool) -> Grid:
    """The number of columns that brings the figure close to its target aspect with few empty cells.

    `aspect` is the height of the photo over its width.
    """
    margin, gap = max(12, width // 40), max(8, width // 80)

    def grid(columns: int) -> Grid:
        panel_width = (width - 2 * margin - (columns - 1) * gap) // columns
        size = label_size(panel_width)
        label_height = round(size * (3.0 if has_sentinel else 1.95))
        image_height = max(1, round(panel_width * min(aspect, MAX_PANEL_ASPECT)))
        return Grid(columns, panel_width, image_height, label_height, margin, gap)

    def cost(grid: Grid) -> float:
        rows = math.ceil(count / grid.columns)
        empty = rows * grid.columns - count
        return abs(math.log(rows * grid.pitch / width / PLEASANT_ASPECT)) + empty / count

    grids = [grid(columns) for columns in range(1, count + 1)]
    return min((g for g in grids if g.columns == 1 or g.panel_width >= MIN_PANEL_WIDTH), key=cost)


def label_size(panel_width: int) -> int:
    """Height in pixels of the label under a panel."""
    return min(32, max(14, round(panel_width * 0.08)))


def _draw_label(canvas: Canvas, x: int, y: int, grid: Grid, word: ShownWord) -> None:
    size = label_size(grid.panel_width)
    small = max(12, round(size * 0.8))
    baseline = y + round(1.25 * size)
    percent = f"{word.probability:.0%}"
    canvas.text(x + grid.panel_width, baseline, percent, small, MUTED, anchor="rs")
    room = grid.panel_width - text_width(percent, small) - size / 2
    canvas.fitted(x, baseline, clean(word.text) or "(empty)", size, room)
    thickness = max(2, round(grid.panel_width / 110))
    canvas.bar(x, baseline + round(0.42 * size), grid.panel_width, word.probability, thickness)
    if word.sentinel is not None:
        note = f"{word.sentinel:.0%} not from the photo"
        canvas.fitted(x, baseline + round(1.5 * size), note, small, grid.panel_width, MUTED)


def _draw_legend(canvas: Canvas, scene: Scene, style: Style, baseline: int, size: int, margin: int) -> None:
    x = margin
    if style.shows_colormap:
        canvas.color_bar(
            x, baseline - round(0.75 * size), 7 * size, round(0.75 * size), scene.options.colormap
        )
        x += 8 * size
    model = clean(scene.caption.model)
    room = canvas.image.width - x - margin
    full = f"{style.legend}. Under each word, its probability."
    if text_width(f"{full}    {model}", size) <= room:
        canvas.text(canvas.image.width - margin, baseline, model, size, MUTED, anchor="rs")
    legend = full if text_width(full, size) <= room else style.legend
    canvas.fitted(x, baseline, legend, size, room, MUTED)
