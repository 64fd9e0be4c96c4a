"""Fonts that have the letters of a text, if one is installed, and texts of a limited width."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

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
    """The built-in font at `size` pixels, or a system font that has letters it lacks."""
    best, fewest = None, len(text) + 1
    for name in (None, *_FALLBACKS, *_noto_fonts(text)):
        font = _load(name, size)
        missing = fewest if font is None else _count_missing(font, text)
        if missing < fewest:
            best, fewest = font, missing
        if fewest == 0:  # looking for more fonts takes time
            break
    assert best is not None  # the built-in font is always there
    return best


def _noto_fonts(text: str) -> list[str]:
    """The fonts of Noto for the scripts of a text: most have one of their own."""
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha()}
    return sorted(f"NotoSans{script.title()}-Regular.ttf" for script in scripts)


def _count_missing(font: Font, text: str) -> int:
    missing = bytes(font.getmask(_MISSING))
    return sum(not letter.isspace() and bytes(font.getmask(letter)) == missing for letter in set(text))


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
    """`text` as lines of at most `width` pixels; a wider word is truncated."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(truncate(word, font, width))
    return lines
