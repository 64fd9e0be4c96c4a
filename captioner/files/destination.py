"""Where an output goes that a user gave as a path, and how it gets there."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from captioner.errors import OutputError, reason_of
from captioner.files.held_folder import BINARY, Folder, rejection
from captioner.files.partial import Partial, remove_stale, replacing_in

_DESCRIPTORS = ("/dev/std", "/dev/fd/", "/proc/")
_MOST_LINKS = 40


class Destination(NamedTuple):
    """Where the output goes that a user gave as a path."""

    path: Path
    is_stream: bool
    """Whether it is written to and never replaced: a device, a pipe, or a file that is open already."""


def find_destination(path: Path) -> Destination:
    """Where an output goes: to `path`, or where the user's links lead.

    A link is followed if it is the user's own, or root's, and leads to something that is there or to a name
    below its own folder. Raises `OSError` for any other.
    """
    place = path
    for _ in range(_MOST_LINKS):
        try:
            status = os.lstat(place)
        except (FileNotFoundError, ValueError):
            return Destination(_check_new(path, place), False)
        if str(place).startswith(_DESCRIPTORS):
            return Destination(place, True)
        if not stat.S_ISLNK(status.st_mode):
            return Destination(place, not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)))
        if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
            raise rejection(errno.EPERM, "it is a link of another user; give the file that it leads to", path)
        place = place.parent / place.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _check_new(path: Path, place: Path) -> Path:
    if place != path and not place.parent.resolve().is_relative_to(path.parent.resolve()):
        why = f"it is a link to {place}, which is not there; make that file, or give it as the output"
        raise rejection(errno.ENOENT, why, path)
    return place


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` into an `OutputError` that names the output."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason_of(error)}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of the output `path`, or of the file that it leads to, if the block
    ends without an error; devices and pipes are written to instead. Raises `OutputError`."""
    with writing(path):
        place, is_stream = find_destination(path)
        if is_stream:
            with tempfile.TemporaryFile() as file:
                yield file
                file.seek(0)
                with open_stream(place) as stream:
                    shutil.copyfileobj(file, stream)
            return
        with Folder(place.parent) as folder:
            remove_stale(folder)
            with replacing_in(folder, place.name) as file:
                yield file


def check_writable(path: Path) -> None:
    """Raise `OutputError` if the output `path` could not be written now."""
    with writing(path):
        place, is_stream = find_destination(path)
        if not is_stream:
            with Folder(place.parent) as folder:
                Partial(folder, place.name).discard()


def open_stream(path: Path) -> IO[bytes]:
    """Open a device, a pipe or a descriptor for writing. Raises `OSError`."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | BINARY), "wb")
