"""Text for people: what others wrote, such as names of files and captions, safe for a terminal, and
for pictures and pages; numbers."""

from __future__ import annotations

import unicodedata

_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}
_INVISIBLE = (
    *(range(0x034F, 0x0350), range(0x115F, 0x1161), range(0x17B4, 0x17B6), range(0x180B, 0x1810)),
    *(range(0x2800, 0x2801), range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFFA0, 0xFFA1)),
    *(range(0xE0000, 0xE1000),),
)
"""What shows nothing although it is no control or format character; most of it has Unicode's property
Default_Ignorable_Code_Point."""
_CONTROLS_AS_BYTES = range(0xDC80, 0xDCA0)
"""Bytes of names that are not UTF-8, as Python holds them, that some terminals take for controls."""


def printable(text: str) -> str:
    r"""`text` with what a terminal does not show as itself written as \t, \n, \r, \xNN, \uNNNN or \UNNNNNNNN:
    control and format characters (such as those that reverse the direction), line separators, and what is
    invisible. Joiners stay where their script needs them.

    A name then cannot break a line into two, add a column, look like another, or send commands to a terminal.
    """
    if text.isascii() and text.isprintable():
        return text
    from captioner.words.tokens import joiners  # not at start-up: it loads regex

    kept = joiners(text)
    return "".join(one if place in kept else _escape(one) for place, one in enumerate(text))


def clean(text: str) -> str:
    """One line of text that is safe to draw and to write as UTF-8.

    Control and direction-override characters become spaces, so that a name cannot reorder or break its line;
    lone surrogates, from file names that are not UTF-8, become U+FFFD.
    """
    kept = (_replacement(letter) for letter in text)
    return " ".join("".join(kept).split())


def is_shown(character: str) -> bool:
    """Whether a character is seen, and changes neither its line nor how others are shown."""
    if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp"):
        return False
    return not any(ord(character) in invisible for invisible in _INVISIBLE)


def counted(count: int, noun: str) -> str:
    """The number and the noun, in the plural if it is not one."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _replacement(letter: str) -> str:
    category = unicodedata.category(letter)
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    # Joiners shape emoji and the scripts of India and Persia; other format characters only mislead.
    return " " if category in ("Cc", "Cf", "Zl", "Zp") and letter not in "\u200c\u200d" else letter


def _escape(character: str) -> str:
    number = ord(character)
    if number in _CONTROLS_AS_BYTES:
        return f"\\x{number - 0xDC00:02x}"
    if is_shown(character):
        return character
    if number < 256:
        return _SHORT.get(character) or f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
