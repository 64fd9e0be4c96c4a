"""Opens the sources that a user names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from captioner.errors import DataError, OptionsError
from captioner.folder.archives import open_archive
from captioner.folder.items import Found
from captioner.folder.sources import FolderSource, ListSource, Selection, Source, is_archive


def open_sources(
    paths: Sequence[Path], selection: Selection | None = None, names: Iterable[str] | None = None
) -> list[Source]:
    """Open folders, archives and image files, or a list of `names` relative to the one folder in `paths`
    (default: the current one).

    Image names are relative to their folder. With several paths, each name starts with its path as given,
    so that names do not collide. Raises `OptionsError` or `DataError`.
    """
    if names is not None:
        if len(paths) > 1:
            raise OptionsError("a list of files is relative to one folder", "files_from")
        root = paths[0] if paths else Path()
        if not root.is_dir():
            raise DataError(f"{root}: there is no such folder")
        return [ListSource(names, root)]
    if not paths:
        raise OptionsError("name a folder, an archive or a list of images", "sources")
    if len(paths) == 1:
        return [_open(paths[0], selection)]
    return [
        _open(path, selection) if _is_single(path) else Labelled(_open(path, selection), path.as_posix())
        for path in paths
    ]


def _open(path: Path, selection: Selection | None) -> Source:
    if path.is_dir():
        return FolderSource(path, selection)
    if not path.exists():
        raise DataError(f"{path}: there is no such folder or file")
    if is_archive(path.name):
        return open_archive(path, selection)
    return ListSource([path.as_posix()], Path())


def _is_single(path: Path) -> bool:
    return not path.is_dir() and not is_archive(path.name)


class Labelled:
    """A source whose image names start with a label."""

    def __init__(self, source: Source, label: str) -> None:
        self._source, self._label = source, label
        self.keeps_order, self.sequential = source.keeps_order, source.sequential

    def find(self) -> Iterator[Found]:
        for found in self._source.find():
            yield dataclasses.replace(found, name=f"{self._label}/{found.name}")

    @property
    def links_left_out(self) -> int:
        return getattr(self._source, "links_left_out", 0)

    @property
    def archives_left_out(self) -> int:
        return getattr(self._source, "archives_left_out", 0)

    @property
    def archives_within(self) -> int:
        return getattr(self._source, "archives_within", 0)

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        return self._source.read(locator, max_bytes)
