"""The still figure: the photo, then one panel per word, wrapped into rows; small words get small panels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from captioner.maps.saliency import fit_photo
from captioner.overlay.canvas import MUTED, Canvas, text_width
from captioner.overlay.scene import DEFAULT_WIDTH, Scene, ShownWord
from captioner.overlay.styles.style import Style
from captioner.overlay.text import font_for, runs_left, wrap
from captioner.printable import clean
from captioner.words.english import is_function_word

MIN_PANEL_WIDTH = 80
MAX_PANEL_ASPECT = 1.6
"""Maximum height over width of a panel; taller photos are fitted into it."""
PLEASANT_ASPECT = 0.62
"""Target height over width of the whole figure."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Positions of the panels in pixels."""

    columns: int
    places: tuple[tuple[int, int], ...]
    """Row of each panel, and its column in half panels."""
    panel_width: int
    image_height: int
    label_height: int
    margin: int
    gap: int

    @property
    def pitch(self) -> int:
        """Distance from the top of one row of panels to the next."""
        return self.image_height + self.label_height + self.gap

    def width_of(self, is_small: bool) -> int:
        """Two small panels and the gap between them are as wide as one panel."""
        return (self.panel_width - self.gap) // 2 if is_small else self.panel_width

    def position(self, place: int) -> tuple[int, int]:
        """The left top of a panel, relative to the first."""
        row, column = self.places[place]
        return round(column * (self.panel_width + self.gap) / 2), row * self.pitch


def draw_figure(scene: Scene, style: Style) -> Image.Image:
    """Draw the caption as a headline, the panels and a legend."""
    width = scene.options.width or DEFAULT_WIDTH
    smalls = [False, *(is_function_word(word.text) for word in scene.words)]
    if all(smalls[1:]):
        smalls = [False] * len(smalls)
    has_sentinel = any(word.sentinel is not None for word in scene.words)
    grid = choose_grid(smalls, width, scene.photo.height / scene.photo.width, has_sentinel)
    headline = max(18, round(width / 46))
    small = max(12, round(width / 110))
    caption = clean(scene.caption.text) or "(no words)"
    lines = wrap(caption, font_for(caption, headline), width - 2 * grid.margin)
    top = grid.margin + round(len(lines) * 1.3 * headline) + grid.gap
    bottom = top + (grid.places[-1][0] + 1) * grid.pitch
    canvas = Canvas(width, bottom + 2 * small + grid.margin)
    leftwards = runs_left(caption)
    left, anchor = (width - grid.margin, "rs") if leftwards else (grid.margin, "ls")
    for number, line in enumerate(lines):
        baseline = grid.margin + round((1.3 * number + 0.95) * headline)
        canvas.text(left, baseline, line, headline, anchor=anchor)
    radius = max(3, round(grid.panel_width / 60))
    for place, small_word in enumerate(smalls):
        x, y = (sum(pair) for pair in zip(grid.position(place), (grid.margin, top), strict=True))
        room = grid.width_of(small_word)
        x = width - x - room if leftwards else x
        picture = photo = fit_photo(scene.photo, room, round(grid.image_height * room / grid.panel_width))
        if place > 0:
            word = scene.words[place - 1]
            assert style.paint is not None
            field = style.field(word.attention, (photo.height, photo.width), (0.0, 0.0))
            picture = style.paint(photo, field, scene.options)
            _draw_label(canvas, x, y + grid.image_height, grid, room, word)
        else:
            size = label_size(grid.panel_width)
            baseline = y + grid.image_height + round(1.25 * size)
            canvas.truncated(x, baseline, "the photo", size, grid.panel_width, MUTED)
        canvas.photo(
            x + (room - photo.width) // 2,
            y + (grid.image_height - photo.height) // (1 if small_word else 2),
            picture,
            radius,
        )
    _draw_legend(canvas, scene, style, bottom + 2 * small, small, grid.margin)
    return canvas.image


def choose_grid(smalls: Sequence[bool], width: int, aspect: float, has_sentinel: bool) -> Grid:
    """The number of columns that brings the figure close to its target aspect with little room left empty.

    `smalls` says which panels are small, `aspect` is the height of the photo over its width.
    """
    margin, gap = max(12, width // 40), max(8, width // 80)
    needed = sum(1 if small else 2 for small in smalls) / 2

    def grid(columns: int) -> Grid:
        panel_width = (width - 2 * margin - (columns - 1) * gap) // columns
        size = label_size(panel_width)
        label_height = round(size * (3.0 if has_sentinel else 1.95))
        image_height = max(1, round(panel_width * min(aspect, MAX_PANEL_ASPECT)))
        places = _wrap_panels(smalls, columns)
        return Grid(columns, places, panel_width, image_height, label_height, margin, gap)

    def cost(grid: Grid) -> float:
        rows = grid.places[-1][0] + 1
        empty = rows * grid.columns - needed
        return abs(math.log(rows * grid.pitch / width / PLEASANT_ASPECT)) + empty / needed

    grids = [grid(columns) for columns in range(1, math.ceil(needed) + 1)]
    return min((g for g in grids if g.columns == 1 or g.panel_width >= MIN_PANEL_WIDTH), key=cost)


def _wrap_panels(smalls: Sequence[bool], columns: int) -> tuple[tuple[int, int], ...]:
    """Row and column of each panel, in half panels."""
    places: list[tuple[int, int]] = []
    row = column = 0
    for small in smalls:
        halves = 1 if small else 2
        if column + halves > 2 * columns:
            row, column = row + 1, 0
        places.append((row, column))
        column += halves
    return tuple(places)


def label_size(panel_width: int) -> int:
    """Height in pixels of the label under a panel."""
    return min(32, max(14, round(panel_width * 0.08)))


def _draw_label(canvas: Canvas, x: int, y: int, grid: Grid, width: int, word: ShownWord) -> None:
    size = label_size(grid.panel_width)
    small = max(12, round(size * 0.8))
    baseline = y + round(1.25 * size)
    text, percent = clean(word.text) or "(empty)", f"{word.probability:.0%}"
    room = width - text_width(percent, small) - size / 2
    if width == grid.panel_width or text_width(text, size) <= room:
        canvas.text(x + width, baseline, percent, small, MUTED, anchor="rs")
    else:  # the bar says it too
        room = width
    canvas.truncated(x, baseline, text, size, room)
    thickness = max(2, round(grid.panel_width / 110))
    canvas.bar(x, baseline + round(0.42 * size), width, word.probability, thickness)
    if word.sentinel is not None:
        notes = [f"{word.sentinel:.0%} not from the photo", f"{word.sentinel:.0%} not seen"]
        note = next((one for one in notes if text_width(one, small) <= width), notes[-1])
        canvas.truncated(x, baseline + round(1.5 * size), note, small, width, MUTED)


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
    canvas.truncated(x, baseline, legend, size, room, MUTED)
