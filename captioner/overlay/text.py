"""Fonts that have the letters of a text, if one is installed, and texts of a limited width."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Collection
from functools import cache, lru_cache

import regex
from PIL import ImageFont

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

# Asked for by name, found by Pillow in the folders of the system, when the built-in font (Aileron, Latin
# letters without accents) lacks a letter. The widest coverage comes last.
_FALLBACKS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "Arial.ttf",
    "NotoSansCJK-Regular.ttc",
    "msyh.ttc",
    "malgun.ttf",
    "Nirmala.ttf",
    "Nirmala.ttc",
    "LeelawUI.ttf",
    "Arial Unicode.ttf",
)
_TOGETHER = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL"}
"""Scripts with one font for all."""
_LOG = logging.getLogger(__name__)
_MISSING = "\uffff"  # a noncharacter: every font draws its box for a missing letter


@lru_cache(maxsize=64)
def _load(name: str | None, size: int) -> Font | None:
    if name is None:
        return ImageFont.load_default(size)
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


def font_for(text: str, size: int) -> Font:
    """The built-in font at `size` pixels, or a system font that has letters it lacks. Where none has all, it
    warns once what to install."""
    best = _load(None, size)
    assert best is not None  # the built-in font is always there
    lacking = _missing(best, text)
    for name in (*_FALLBACKS, *(f"NotoSans{script.title()}-Regular.ttf" for script in _scripts(text))):
        if not lacking:  # looking for more fonts takes time
            break
        font = _load(name, size)
        missing = lacking if font is None else _missing(font, text)
        if font is not None and len(missing) < len(lacking):
            best, lacking = font, missing
    for script in _scripts(lacking):
        if script in _TOGETHER:
            _warn_of("CJK", "cjk")
        else:
            _warn_of(script.title(), "core")
    return best


def _scripts(letters: Collection[str]) -> list[str]:
    """The scripts of letters, as Unicode names them. Most have a font of Noto of their own."""
    return sorted({unicodedata.name(letter, "").partition(" ")[0] for letter in letters if letter.isalpha()})


@cache
def _warn_of(script: str, package: str) -> None:
    _LOG.warning(
        "no font has all letters of a text, so pictures have boxes in it: install Noto's font"
        " for %s (in Debian and Ubuntu: fonts-noto-%s)",
        script,
        package,
    )


def _missing(font: Font, text: str) -> set[str]:
    """The letters of a text that a font lacks."""
    missing = bytes(font.getmask(_MISSING))
    return {letter for letter in text if not letter.isspace() and bytes(font.getmask(letter)) == missing}


def truncate(text: str, font: Font, width: float) -> str:
    """`text`, truncated with dots to at most `width` pixels."""
    if font.getlength(text) <= width:
        return text
    shortest, longest = 0, len(text)
    while shortest < longest:  # the longest beginning that fits
        middle = (shortest + longest + 1) // 2
        if font.getlength(text[:middle].rstrip() + "...") <= width:
            shortest = middle
        else:
            longest = middle - 1
    return text[:shortest].rstrip() + "..." if shortest else ""


def wrap(text: str, font: Font, width: float) -> list[str]:
    """`text` as lines of at most `width` pixels; a wider word, as a whole sentence in Chinese or Thai is one,
    is broken between letters."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        elif font.getlength(word) <= width:
            lines.append(word)
        else:
            lines.append("")
            for letter in regex.findall(r"\X", word):
                if lines[-1] and font.getlength(lines[-1] + letter) > width:
                    lines.append("")
                lines[-1] += letter
    return lines


def runs_left(text: str) -> bool:
    """Whether a text begins in a script that is written from right to left."""
    directions = (unicodedata.bidirectional(letter) for letter in text)
    return next((found for found in directions if found in ("L", "R", "AL")), "L") != "L"
