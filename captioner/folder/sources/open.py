"""Opens the sources that a user names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from captioner.errors import DataError, OptionsError
from captioner.folder.items import ListedImage
from captioner.folder.sources.archives import open_archive
from captioner.folder.sources.files import FolderSource, ListSource
from captioner.folder.sources.selection import Selection
from captioner.folder.sources.source import Source
from captioner.images.suffixes import is_archive


@contextmanager
def open_sources(
    paths: Sequence[Path], selection: Selection | None = None, names: Iterable[str] | None = None
) -> Iterator[list[Source]]:
    """Open folders, archives and image files, or a list of `names` relative to the one folder in `paths`
    (default: the current one), and close them at the end of the block.

    Image names are relative to their folder. With several paths, each name starts with its path as given,
    so that names do not collide. Raises `OptionsError` or `DataError`.
    """
    with ExitStack() as opened:
        sources = []
        for source in _sources(paths, selection, names):
            opened.callback(source.close)
            sources.append(source)
        yield sources


def _sources(
    paths: Sequence[Path], selection: Selection | None, names: Iterable[str] | None
) -> Iterator[Source]:
    if names is not None:
        if len(paths) > 1:
            raise OptionsError("a list of files is relative to one folder", "files_from")
        root = paths[0] if paths else Path()
        if not root.is_dir():
            raise DataError(f"{root}: there is no such folder")
        yield ListSource(names, root)
    elif not paths:
        raise OptionsError("name a folder, an archive or a list of images", "sources")
    elif len(paths) == 1:
        yield _open(paths[0], selection)
    else:
        for path in paths:
            yield _open_labelled(path, selection)


def _open(path: Path, selection: Selection | None) -> Source:
    """A file that the selection leaves out is a source without images."""
    if path.is_dir():
        return FolderSource(path, selection)
    if not path.exists():
        raise DataError(f"{path}: there is no such folder or file")
    if is_archive(path.name):
        return open_archive(path, selection)
    taken = selection is None or selection.takes_named(path.as_posix())
    return ListSource([path.as_posix()] if taken else [], Path())


def _open_labelled(path: Path, selection: Selection | None) -> Source:
    """One of several sources."""
    source = _open(path, selection)
    is_single = not path.is_dir() and not is_archive(path.name)
    return source if is_single else Labelled(source, path.as_posix())


class Labelled:
    """A source whose image names start with a label."""

    def __init__(self, source: Source, label: str) -> None:
        self._source, self.label = source, label
        self.left_out = source.left_out
        self.keeps_order, self.sequential = source.keeps_order, source.sequential

    def find(self) -> Iterator[ListedImage]:
        for found in self._source.find():
            yield dataclasses.replace(found, name=f"{self.label}/{found.name}")

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        return self._source.read(locator, max_bytes)

    def close(self) -> None:
        self._source.close()
