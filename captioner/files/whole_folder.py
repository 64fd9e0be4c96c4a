"""Folders with all that they hold: put on the disk, and put in place."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from captioner.errors import OutputError
from captioner.files.destination import writing
from captioner.files.held_folder import BINARY, NO_LINK, Folder
from captioner.files.locks import HAS_LOCKS, is_at, lock
from captioner.files.new_folders import missing_folders, remove_empty, removing_unused

_ASIDE = re.compile(r"\.captioner-[0-9a-f]{16}")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NO_LINK


@contextmanager
def folder_aside(place: Path, rescue: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """A new folder in the folder `place`, for what is to be put in place as a whole. It goes at the end with
    what is left in it, and at once go those that killed runs have left, after `rescue` of each. `place` is
    made if it is not there, and goes too if nothing was put into it. Raises `OSError`."""
    with removing_unused(place), ExitStack() as opened:
        place.mkdir(parents=True, exist_ok=True)
        _remove_stale(place, rescue)
        while True:
            folder = place / f".captioner-{secrets.token_hex(8)}"  # a name that nobody can guess
            folder.mkdir()
            opened.callback(shutil.rmtree, folder, ignore_errors=True)
            if _hold(folder, opened):
                break
        yield folder


def is_taken(path: Path) -> bool:
    """Whether anything is at `path` but an empty folder, whose place `publish_folder` can take. Raises
    `OSError`."""
    if path.is_symlink() or not path.is_dir():
        return os.path.lexists(path)
    return any(path.iterdir())


@contextmanager
def hold_place(path: Path) -> Iterator[None]:
    """Hold the place of a folder that is to be published, where the system has locks: by one on an empty
    folder there, which is removed if it was made for this and stays empty. Raises `OutputError` if another
    run holds the place, and if no folder can be made there."""
    with ExitStack() as held:
        if HAS_LOCKS:
            missing = missing_folders(path)
            with writing(path), suppress(FileExistsError):  # what else is there is for the caller to say
                path.mkdir(parents=True)
            if not _hold(path, held):
                raise OutputError(f"another run is writing this output ({path})")
            held.callback(remove_empty, missing)
        yield


def _hold(folder: Path, opened: ExitStack) -> bool:
    """Lock a folder. False if another run has locked, replaced or removed it meanwhile."""
    try:
        descriptor = os.open(folder, _FOLDER)
        opened.callback(os.close, descriptor)
        lock(descriptor)
        return is_at(descriptor, folder.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a system without locks of folders, where no run removes those of others
        return True


def _remove_stale(place: Path, rescue: Callable[[Path], None] | None) -> None:
    for folder in place.iterdir():
        if not _ASIDE.fullmatch(folder.name):
            continue
        with suppress(OSError), ExitStack() as opened:
            descriptor = os.open(folder, _FOLDER)
            opened.callback(os.close, descriptor)
            lock(descriptor)
            if is_at(descriptor, folder.lstat()):
                if rescue is not None:
                    rescue(folder)
                shutil.rmtree(folder)


def publish_folder(folder: Path, path: Path) -> None:
    """Rename a folder to `path`, where nothing may be but an empty folder, once all that it holds is on the
    disk. Raises `OSError`."""
    sync_folder(folder)
    if os.name == "nt":  # renames a folder only to where nothing is
        remove_empty([path])
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
