"""Files that are read again when they change, known by their content: size and time can stay the same."""

from __future__ import annotations

import hashlib
from pathlib import Path


def read_file(path: Path | None) -> bytes | None:
    """The content of the file; None if there is none or it cannot be read."""
    try:
        return None if path is None else path.read_bytes()
    except OSError:
        return None


def content_digest(path: Path) -> bytes | None:
    """SHA-256 of the file; None if it cannot be read."""
    content = read_file(path)
    return None if content is None else hashlib.sha256(content).digest()
