"""Folders that are made for an output, and go again if nothing came into them; those of the user stay."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def missing_folders(path: Path) -> list[Path]:
    """What is not there yet of `path` and the folders above it, the innermost first."""
    return [place for place in (path, *path.parents) if not os.path.lexists(place)]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove those folders that are empty."""
    for folder in folders:
        with suppress(OSError, ValueError):  # a null byte
            folder.rmdir()


@contextmanager
def removing_unused(path: Path) -> Iterator[None]:
    """Remove at the end the folder `path`, and those above it, if they were made meanwhile and are empty."""
    missing = missing_folders(path)
    try:
        yield
    finally:
        remove_empty(missing)
