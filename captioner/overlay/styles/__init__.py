"""Overlay styles: how the maps of words are shown. A style is one file, whose name it has, and one line here.

A file is loaded when its style is used, so that help and the command line stay light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from captioner.errors import OptionsError

if TYPE_CHECKING:
    from captioner.overlay.styles.style import Style

PICTURE, ANIMATION, PAGE = "picture", "animation", "page"


class Listed(NamedTuple):
    """What the command line says about a style."""

    help: str
    media: tuple[str, ...]
    """Where it works: `PICTURE`, `ANIMATION`, `PAGE`."""


STYLES = {
    "panels": Listed("colours where it looked", (PICTURE, ANIMATION, PAGE)),
    "heatmap": Listed("colours over the whole photo in grey", (PICTURE, ANIMATION)),
    "contour": Listed("lines around 25, 50 and 75 % of the attention", (PICTURE, ANIMATION)),
    "spotlight": Listed("a dark photo, lit where it looked", (PICTURE, ANIMATION, PAGE)),
    "matrix": Listed("a table of words by cells", (PICTURE,)),
}
"""All styles, the default first."""
DEFAULT_STYLE = next(iter(STYLES))


def styles_for(medium: str) -> list[str]:
    """The names of the styles that work in the `medium`."""
    return [name for name, listed in STYLES.items() if medium in listed.media]


def check_style(name: str, medium: str) -> None:
    """Raise `OptionsError` unless there is such a style and it works in the `medium`."""
    known = styles_for(medium)
    if name not in known:
        raise OptionsError(f"style must be one of {', '.join(known)} for {medium}s, got {name!r}", "style")


def find_style(name: str, medium: str) -> Style:
    """The style of that name. Raises `OptionsError` as `check_style` does."""
    check_style(name, medium)
    style: Style = importlib.import_module(f"captioner.overlay.styles.{name}").STYLE
    return style
