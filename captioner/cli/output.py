"""What all commands print and return. Lines stay intact, whatever characters file names contain."""

from __future__ import annotations

import sys

from captioner.errors import CaptionerError
from captioner.printable import counted, printable

__all__ = ["INTERRUPTED", "counted", "printable", "report_failure"]

INTERRUPTED = 128 + 2
"""Exit status after Ctrl-C, as shells have it."""


def report_failure(name: str, error: CaptionerError | str) -> None:
    """Print an image that failed and the reason to stderr."""
    reason = error.reason if isinstance(error, CaptionerError) else error
    print(f"captioner: {printable(name)}: {printable(reason)}", file=sys.stderr)
