"""What all commands return after Ctrl-C, and what they print to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

from captioner.errors import CaptionerError, clip_path
from captioner.printable import counted, printable

T = TypeVar("T")

INTERRUPTED = 128 + 2
"""Exit status after Ctrl-C, as shells have it."""


def say(text: str) -> None:
    """Print a line to stderr, where everything goes that is no result."""
    print(f"captioner: {printable(text)}", file=sys.stderr)


def report_failure(name: str, error: CaptionerError | str) -> None:
    """Print an image that failed and the reason to stderr."""
    say(f"{clip_path(name)}: {error.reason if isinstance(error, CaptionerError) else error}")


def interrupted(done: int, of: int) -> str:
    """How a run over images was ended."""
    are, are_left = ("is" if count == 1 else "are" for count in (done, of - done))
    return f"interrupted; {counted(done, 'image')} {are} done and kept, {of - done} {are_left} left"


def with_progress(items: Iterable[T], what: str, total: int, *, quiet: bool = False) -> Iterable[T]:
    """The items, with a bar on stderr while they are read; none without a terminal, or if `quiet`."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True, quiet=quiet)
    return track(items, what, total=total, console=console, transient=True, disable=not console.is_terminal)
