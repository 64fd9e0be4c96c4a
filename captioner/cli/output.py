"""What all commands print and return. Lines stay intact, whatever characters file names contain."""

from __future__ import annotations

import sys
import unicodedata

from captioner.errors import CaptionerError

INTERRUPTED = 128 + 2
"""Exit status after Ctrl-C, as shells have it."""
_SHORT = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


def printable(text: str) -> str:
    r"""`text` with control characters and line separators as \t, \n, \r, \xNN or \uNNNN.

    A name then cannot break a line into two, add a column, or send commands to a terminal.
    """
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if unicodedata.category(character) not in ("Cc", "Zl", "Zp"):
        return character
    number = ord(character)
    return _SHORT.get(character) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")


def counted(count: int, noun: str) -> str:
    """The number and the noun, in the plural if it is not one."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def report_failure(name: str, error: CaptionerError | str) -> None:
    """Print an image that failed and the reason to stderr."""
    print(f"captioner: {printable(name)}: {printable(str(error))}", file=sys.stderr)
