"""Atomic file writing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from captioner.errors import OutputError
from captioner.folder.sources import Selection
from captioner.folder.state import State

_PHOTOS = Selection(hidden=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` into an `OutputError` that names the output."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


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


def partial_path(path: Path) -> Path:
    """Path at which the next version of a file is written."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def replacing(path: Path, partial: Path | None = None) -> Iterator[IO[bytes]]:
    """A binary file, `partial`, that replaces `path` if the block ends without an error."""
    partial = partial or partial_path(path)
    with writing(path):
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            put_in_place(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def put_in_place(partial: Path, path: Path) -> None:
    """Rename durably: also sync the folder."""
    partial.replace(path)
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError:  # not possible on every system
        return
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def claim(path: Path, state: State) -> None:
    """Raise `OutputError` for a folder, and if the file exists, no run with this state wrote it, and it may
    not be replaced."""
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder")
    if state.get("claimed") is None and path.exists() and not state.overwrite:
        raise OutputError(
            f"{path} is there already, and no earlier run of this command wrote it; --overwrite replaces it"
        )
    state.set("claimed", "yes")
