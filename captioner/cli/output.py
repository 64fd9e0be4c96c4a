"""What all commands return after Ctrl-C, and how they report an image that failed."""

from __future__ import annotations

import sys

from captioner.errors import CaptionerError
from captioner.printable import printable

INTERRUPTED = 128 + 2
"""Exit status after Ctrl-C, as shells have it."""


def report_failure(name: str, error: CaptionerError | str) -> None:
    """Print an image that failed and the reason to stderr."""
    reason = error.reason if isinstance(error, CaptionerError) else error
    print(f"captioner: {printable(name)}: {printable(reason)}", file=sys.stderr)
