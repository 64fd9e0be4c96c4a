"""Who may read a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_open_to_all(path: Path) -> bool:
    """Whether every user of this machine may read a file. Raises `OSError`."""
    return os.name == "posix" and bool(path.stat().st_mode & stat.S_IROTH)
