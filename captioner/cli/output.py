"""What all commands return after Ctrl-C, and how they report an image that failed."""

from __future__ import annotations

import sys

from captioner.errors import CaptionerError
from captioner.printable import counted, printable

INTERRUPTED = 128 + 2
"""Exit status after Ctrl-C, as shells have it."""


def report_failure(name: str, error: CaptionerError | str) -> None:
    """Print an image that failed and the reason to stderr."""
    reason = error.reason if isinstance(error, CaptionerError) else error
    print(f"captioner: {printable(name)}: {printable(reason)}", file=sys.stderr)


def interrupted(done: int, of: int) -> str:
    """How a run over images was ended."""
    are, are_left = ("is" if count == 1 else "are" for count in (done, of - done))
    return f"interrupted; {counted(done, 'image')} {are} done and kept, {of - done} {are_left} left"
