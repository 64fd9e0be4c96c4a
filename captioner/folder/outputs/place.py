"""What an output may be written to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from captioner.errors import OutputError
from captioner.files.destination import find_destination, replacing, writing
from captioner.files.held_folder import Folder
from captioner.files.partial import Partial, remove_stale, replacing_in
from captioner.folder.sources.selection import Selection

if TYPE_CHECKING:
    from captioner.folder.state import State

_PHOTOS = Selection(hidden=True)
_LONGEST_NAME = 255 - len("-journal")
"""Bytes of a name, with room for what SQLite adds."""


class Place:
    """Where an output goes: to `path`, or where the user's links lead. Its folder is held open, so that the
    output goes there even if somebody puts another folder at its path meanwhile. Use as a context, or close
    it. Every method raises `OutputError`."""

    def __init__(self, path: Path) -> None:
        self._given = path
        with writing(path):
            self.path, is_stream = find_destination(path)
            self.folder = None if is_stream else Folder(self.path.parent)
            """None for a device or a pipe."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.folder is not None:
            self.folder.close()

    def is_taken(self) -> bool:
        """Whether there is a file with content."""
        with writing(self._given):
            status = None if self.folder is None else self.folder.look(self.path.name)
        return status is not None and status.st_size > 0

    def check_writable(self) -> None:
        """Raise the error that `replacing` would raise now."""
        if self.folder is not None:
            with writing(self._given):
                Partial(self.folder, self.path.name).discard()

    @contextmanager
    def replacing(self) -> Iterator[IO[bytes]]:
        """As `captioner.files.destination.replacing`."""
        if self.folder is None:
            with replacing(self.path) as file:
                yield file
            return
        with writing(self._given):
            remove_stale(self.folder)
            with replacing_in(self.folder, self.path.name) as file:
                yield file


def check_folder(path: Path) -> None:
    """Raise `OutputError` if the folder of the file does not exist."""
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}")


def check_no_input(path: Path, inputs: Iterable[str | Path]) -> None:
    """Raise `OutputError` if an output is an input: one of these files, or a photo below one of these
    folders."""
    # Path.is_file fails for names that are too long.
    if os.path.isfile(path) and any(_is_input(path, Path(place)) for place in inputs):  # noqa: PTH113
        raise OutputError(f"{path} is one of the inputs; choose another name for OUT")


def _is_input(path: Path, place: Path) -> bool:
    if os.path.isdir(place):  # noqa: PTH112
        folder = place.resolve()
        ends = (path.parent.resolve() / path.name, path.resolve())  # a link, and the file that it leads to
        return any(_PHOTOS.takes_file(end.name) and end.is_relative_to(folder) for end in ends)
    try:
        return path.samefile(place)
    except (OSError, ValueError):  # there is no such file
        return False


def find_state(path: Path) -> Path | None:
    """The state of an output that is one file; None for a device or a pipe, which is written anew each time.
    Raises `OutputError`."""
    with writing(path):
        return None if find_destination(path).is_stream else beside(path, ".state")


def beside(path: Path, suffix: str) -> Path:
    """The path of a file that belongs to another: its name and a suffix, shortened where that is too long for
    a file system."""
    name = path.name
    digest = blake2b(os.fsencode(name), digest_size=8).hexdigest()
    while len(os.fsencode(name + suffix)) > _LONGEST_NAME:
        shorter = name.removesuffix(f"~{digest}")[:-1]
        name = f"{shorter}~{digest}"
    return path.with_name(name + suffix)


def claim(path: Path, state: State, key: str = "claimed") -> Place:
    """Where the output goes. Raises `OutputError` for a folder, and if something is there, no run with this
    state wrote it, and it may not be replaced."""
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    place = Place(path)
    # A link that has come to lead elsewhere makes nothing there ours.
    owned = "yes" if place.path == path else str(place.path.absolute())
    if place.is_taken() and state.get(key) != owned and not state.overwrite:
        where = "" if place.path == path else f" (it leads to {place.path})"
        place.close()
        raise OutputError(
            f"{path} is there already{where}, and no earlier run of this command wrote it; "
            "--overwrite replaces it"
        )
    state.set(key, owned)
    return place
