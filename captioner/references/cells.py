"""Cells of CSV that a spreadsheet would compute: made text, and read again."""

from __future__ import annotations

import re

_FORMULA = "[=+\\-@\uff1d\uff0b\uff0d\uff20]"
"""What a cell begins with that a spreadsheet computes, in both widths."""
_FIRST = rf"(?={_FORMULA}|[\t\r\n])"
_WITHIN = rf"(?={_FORMULA})"
_PATH = re.compile(rf"{_FIRST}|(?=\s)")
_TEXT = re.compile(rf"^{_FIRST}|(?<=[;\t\r\n]){_WITHIN}")
_TEXT_WRITTEN = re.compile(rf"^'{_FIRST}|(?<=[;\t\r\n])'{_WITHIN}")


def escape_path(text: str) -> str:
    """A path that is no formula, and does not begin with a space, which readers of tables take off: with "./"
    before it."""
    return f"./{text}" if _PATH.match(text) else text


def escape_text(text: str) -> str:
    """A text that has an apostrophe before all that is a formula, also where lines are divided at semicolons
    or tabs."""
    return _TEXT.sub("'", text)


def unescape_path(text: str) -> str:
    """The path before `escape_path`."""
    return text[2:] if text.startswith("./") and _PATH.match(text, 2) else text


def unescape_text(text: str) -> str:
    """The text before `escape_text`."""
    return _TEXT_WRITTEN.sub("", text)
