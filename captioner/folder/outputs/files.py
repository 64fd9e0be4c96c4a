"""What an output may be written to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.errors import OutputError
from captioner.files import Destination, beside, find_destination, writing
from captioner.folder.sources import Selection

if TYPE_CHECKING:
    from captioner.folder.state import State

_PHOTOS = Selection(hidden=True)


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


def claim(path: Path, state: State, key: str = "claimed") -> Destination:
    """Where the output goes. Raises `OutputError` for a folder, and if something is there, no run with this
    state wrote it, and it may not be replaced."""
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    with writing(path):
        destination = find_destination(path)
        place = destination.path
        is_there = not destination.is_stream and place.exists() and place.stat().st_size > 0
    # A link that has come to lead elsewhere makes nothing there ours.
    owned = "yes" if place == path else str(place.absolute())
    if is_there and state.get(key) != owned and not state.overwrite:
        where = "" if place == path else f" (it leads to {place})"
        raise OutputError(
            f"{path} is there already{where}, and no earlier run of this command wrote it; "
            "--overwrite replaces it"
        )
    state.set(key, owned)
    return destination
