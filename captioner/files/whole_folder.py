"""Folders with all that they hold: put on the disk, and put in place."""

from __future__ import annotations

import os
from pathlib import Path

from captioner.files.held_folder import BINARY, NO_LINK, Folder


def publish_folder(folder: Path, path: Path) -> None:
    """Rename a folder to `path`, where nothing may be but an empty folder, once all that it holds is on the
    disk. Raises `OSError`."""
    sync_folder(folder)
    folder.rename(path)
    with Folder(path.parent) as parent:
        parent.sync()


def sync_folder(folder: Path) -> None:
    """Return once all that a folder holds is on the disk. Raises `OSError`."""
    for place, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDWR | NO_LINK | BINARY)  # noqa: PTH118
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        with Folder(Path(place)) as one:
            one.sync()
