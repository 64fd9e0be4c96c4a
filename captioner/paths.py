"""Paths in configurations."""

from __future__ import annotations

from pathlib import Path

from captioner.errors import DataError


def below(folder: Path, place: str | Path) -> Path:
    """What a configuration means by a path: relative to `folder`, unless it is absolute or begins with ~, the
    home folder. Raises `DataError` where the system does not know that."""
    try:
        return folder / Path(place).expanduser()
    except RuntimeError as error:
        raise DataError(f"{place}: {error}") from None
