"""Images below a path or URI, for the workers of a cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from captioner.errors import DataError, ImageUnreadableError, OptionsError
from captioner.folder.items import ListedImage
from captioner.folder.sources.files import FolderSource, ListSource, stamp_of_content
from captioner.folder.sources.selection import Selection
from captioner.folder.sources.source import LeftOut, Source
from captioner.folder.stores import open_filesystem, reason, shown
from captioner.images.limits import too_many_bytes
from captioner.images.suffixes import is_archive

_LOOK_AT_ONCE = 1000


def open_place(uri: str, selection: Selection | None = None, names: Iterable[str] | None = None) -> Source:
    """The images below a path or URI, or those of `names` in it. Their stamps are of size and modification
    time, which is all that object stores have. Raises `DataError` or `OptionsError`."""
    filesystem, path = open_filesystem(uri)
    is_local = filesystem.type_name == "local"
    if is_archive(path) and not (is_local and Path(path).is_dir()):
        raise OptionsError(f"{shown(uri)}: Ray's workers read folders, not archives; unpack it", "sources")
    if not is_local:
        return UriSource(uri, selection, names)
    if names is None:
        return FolderSource(Path(path), selection, stamp_of_content)
    return ListSource(names, Path(path), stamp_of_content)


class UriSource:
    """The images below a URI, or those of `names`."""

    sequential = False

    def __init__(
        self, uri: str, selection: Selection | None = None, names: Iterable[str] | None = None
    ) -> None:
        self.uri, self._selection, self._names = uri, selection or Selection(), names
        self.left_out = LeftOut()
        self.keeps_order = names is not None
        self._filesystem, self._root = open_filesystem(uri)

    def find(self) -> Iterator[ListedImage]:
        return self._walk() if self._names is None else self._look(iter(self._names))

    def _walk(self) -> Iterator[ListedImage]:
        from pyarrow import fs

        try:
            infos = self._filesystem.get_file_info(fs.FileSelector(self._root, recursive=True))
        except (OSError, ValueError) as error:
            raise DataError(f"{shown(self.uri)}: {reason(error)}") from None
        for info in infos:
            name = info.path.removeprefix(self._root).lstrip("/")
            if info.type == fs.FileType.File and self._selection.takes_path(name):
                yield _found(name, info)

    def _look(self, names: Iterator[str]) -> Iterator[ListedImage]:
        from pyarrow import fs

        while some := list(itertools.islice(names, _LOOK_AT_ONCE)):
            try:
                infos = self._filesystem.get_file_info([f"{self._root}/{name}" for name in some])
            except (OSError, ValueError) as error:
                raise DataError(f"{shown(self.uri)}: {reason(error)}") from None
            for name, info in zip(some, infos, strict=True):
                if info.type == fs.FileType.File:
                    yield _found(name, info)
                else:
                    missing = info.type == fs.FileType.NotFound
                    problem = "No such file or directory" if missing else "not a regular file"
                    yield ListedImage(name, os.fsencode(name), "", problem)

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        path = f"{self._root}/{os.fsdecode(locator)}"
        try:
            with self._filesystem.open_input_stream(path) as stream:
                content: bytes = stream.read(max_bytes + 1)
        except (OSError, ValueError) as error:
            raise ImageUnreadableError(reason(error)) from error
        if len(content) > max_bytes:
            raise too_many_bytes(max_bytes)
        return content, ""

    def close(self) -> None:
        """Nothing is held open."""


def _found(name: str, info: Any) -> ListedImage:
    return ListedImage(name, os.fsencode(name), f"{info.size}-{info.mtime_ns}")
