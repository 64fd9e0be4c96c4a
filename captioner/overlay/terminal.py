"""Shows a caption in the terminal: words coloured by probability, and a small map for each where colours
or block characters are available."""

from __future__ import annotations

import os

import numpy as np
from PIL import Image
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from captioner.errors import CaptionerError
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.opening import open_image
from captioner.images.sources import ImageInput
from captioner.maps.saliency import blend, relative
from captioner.overlay.render import render_overlay
from captioner.overlay.scene import ShownWord, show_word
from captioner.overlay.terminal_images import encode, protocol_of
from captioner.printable import clean, printable
from captioner.results import Caption

SURE, UNSURE = 0.6, 0.3
"""Words of at least these probabilities are green and yellow, others red. Terminal colours are used, so
that they suit its background."""
FIGURE_WIDTH = 1000
"""Pixels of the figure in terminals that show pictures."""
MAP_COLUMNS = 16
MAX_MAP_LINES = 10
SHADES = " ░▒▓█"
GAP = 2


def show_caption(
    caption: Caption,
    console: Console | None = None,
    image: ImageInput | None = None,
    limits: ImageLimits = DEFAULT_LIMITS,
) -> None:
    """Print the words with their probabilities and, on a terminal, their maps.

    Maps are drawn over `image` (default: `caption.source`) unless it exceeds `limits`. Terminals that show
    pictures (kitty, iTerm2, sixel) get the figure of `captioner overlay`, others blocks of colour. NO_COLOR
    and terminals without colours get maps of shaded blocks; a pipe or a file gets the words alone.
    """
    console = console or Console()
    words = [(printable(clean(word.text)) or "(empty)", word.probability) for word in caption.words]
    columns = [_word_column(text, probability, console.width) for text, probability in words]
    if not columns:
        console.print(Text(printable(clean(caption.text))), highlight=False)
    _print_side_by_side(columns, console)
    shown = [show_word(word, at) for at, word in enumerate(caption.words, 1) if word.attention is not None]
    if not (shown and console.is_terminal):
        return
    image = image if image is not None else caption.source
    if _show_figure(caption, console, image, limits):
        return
    if _has_blocks(console):
        photo = _thumbnail(image, limits)
        _print_side_by_side([_map_column(word, photo, console) for word in shown], console)


def _show_figure(caption: Caption, console: Console, image: ImageInput | None, limits: ImageLimits) -> bool:
    """Show the figure as a picture; False if the terminal or the photo does not allow it."""
    protocol = None if console.no_color else protocol_of(os.environ)
    if protocol is None or image is None:
        return False
    try:
        figure = render_overlay(image, caption, width=FIGURE_WIDTH, limits=limits)
    except CaptionerError:
        return False
    console.file.write(encode(figure, protocol))
    console.file.flush()
    return True


def _has_blocks(console: Console) -> bool:
    return console.encoding.lower().replace("-", "").startswith("utf")


def _word_column(text: str, probability: float, room: int) -> list[Text]:
    color = "green" if probability >= SURE else "yellow" if probability >= UNSURE else "red"
    word = Text(text, style=Style(color=color, bold=True), no_wrap=True)
    word.truncate(room, overflow="ellipsis")
    return [word, Text(f"{probability:.0%}", style=Style(dim=True))]


def _thumbnail(image: ImageInput | None, limits: ImageLimits) -> Image.Image | None:
    if image is None:
        return None
    try:
        photo = open_image(image, limits, 4 * MAP_COLUMNS)
    except CaptionerError:  # the words and the bare maps still say something
        return None
    lines = round(MAP_COLUMNS * photo.height / photo.width / 2)
    return photo.resize((MAP_COLUMNS, 2 * min(MAX_MAP_LINES, max(2, lines))), Image.Resampling.BOX)


def _map_column(word: ShownWord, photo: Image.Image | None, console: Console) -> list[Text]:
    """Each character shows two pixels, one above the other: characters are twice as high as wide."""
    height = photo.height if photo is not None else MAP_COLUMNS
    values = relative(word.attention, (height, MAP_COLUMNS))
    title = Text(clean(word.text), style="dim", no_wrap=True)
    title.truncate(MAP_COLUMNS, overflow="ellipsis")
    if console.color_system is None or console.no_color:
        peaks = values.reshape(-1, 2, MAP_COLUMNS).max(axis=1)
        levels = np.minimum(peaks * len(SHADES), len(SHADES) - 1).astype(int)
        return [*(Text("".join(SHADES[level] for level in row)) for row in levels), title]
    ground = photo.convert("L").convert("RGB") if photo else Image.new("RGB", (MAP_COLUMNS, height))
    pixels = np.asarray(blend(ground, values)).reshape(-1, 2, MAP_COLUMNS, 3).tolist()
    lines = []
    for upper, lower in pixels:
        line = Text()
        for top, bottom in zip(upper, lower, strict=True):
            line.append("▀", Style(color=Color.from_rgb(*top), bgcolor=Color.from_rgb(*bottom)))
        lines.append(line)
    return [*lines, title]


def _print_side_by_side(columns: list[list[Text]], console: Console) -> None:
    """Print blocks of lines side by side, as many as fit the terminal, then the next row."""
    row: list[list[Text]] = []
    used = 0
    for column in columns:
        width = max(cell_len(line.plain) for line in column)
        if row and used + width > console.width:
            _print_row(row, console)
            row, used = [], 0
        row.append(column)
        used += width + GAP
    if row:
        _print_row(row, console)


def _print_row(row: list[list[Text]], console: Console) -> None:
    widths = [max(cell_len(line.plain) for line in column) for column in row]
    for number in range(max(len(column) for column in row)):
        joined = Text(no_wrap=True)
        for column, width in zip(row, widths, strict=True):
            line = column[number] if number < len(column) else Text()
            joined.append_text(line)
            joined.append(" " * (width - cell_len(line.plain) + GAP))
        joined.rstrip()
        console.print(joined, highlight=False, soft_wrap=True)
    console.print()
