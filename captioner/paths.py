"""Paths in configurations, and who may read what they lead to."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from captioner.errors import DataError


def below(folder: Path, place: str | Path) -> Path:
    """What a configuration means by a path: relative to `folder`, unless it is absolute or begins with ~, the
    home folder. Raises `DataError` where the system does not know that."""
    try:
        return folder / Path(place).expanduser()
    except RuntimeError as error:
        raise DataError(f"{place}: {error}") from None


def is_open_to_all(path: Path) -> bool:
    """Whether every user of this machine may read a file. Raises `OSError`."""
    return os.name == "posix" and bool(path.stat().st_mode & stat.S_IROTH)
