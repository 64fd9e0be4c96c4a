"""Detects changes of small files by their content, since size and time can stay the same."""

from __future__ import annotations

import hashlib
from pathlib import Path


def content_digest(path: Path) -> bytes | None:
    """SHA-256 of the file; None if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return None
