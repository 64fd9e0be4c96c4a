"""Folders of finished parts, on this machine or in an object store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from captioner.errors import OutputError
from captioner.files.destination import writing
from captioner.files.held_folder import Folder
from captioner.files.partial import remove_stale, replacing_in
from captioner.folder.stores import open_filesystem, reason, shown

_PART = re.compile(r"part-\d{5,}-of-\d{5,}-[0-9a-f]{16}\.parquet")
_READ_AT_ONCE = 16


class PartFolder:
    """A folder of finished parts in any filesystem. Every method raises `OutputError`."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._filesystem, self._root = open_filesystem(uri)

    @property
    def local(self) -> Path | None:
        """The local path, if the folder is on this machine."""
        return Path(self._root) if self._filesystem.type_name == "local" else None

    def create(self) -> None:
        with self._reaching("write"):
            self._filesystem.create_dir(self._root, recursive=True)

    def names(self, prefix: str = "") -> set[str]:
        """Finished files: parts, or names that start with `prefix`."""
        from pyarrow import fs

        with self._reaching("read"):
            infos = self._filesystem.get_file_info(fs.FileSelector(self._root, allow_not_found=True))
        names = {info.base_name for info in infos if info.type == fs.FileType.File}
        return {name for name in names if (name.startswith(prefix) if prefix else _PART.fullmatch(name))}

    def count_failed(self, names: Iterable[str]) -> dict[str, Counter[str]]:
        """The images without a caption in each part, by the code of their error; unreadable parts are left
        out."""
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            names = sorted(names)
            counts = pool.map(self._count_failed, names)
            return {name: count for name, count in zip(names, counts, strict=True) if count is not None}

    def _count_failed(self, name: str) -> Counter[str] | None:
        from pyarrow import parquet

        try:
            with self._filesystem.open_input_file(f"{self._root}/{name}") as file:
                codes = parquet.read_table(file, columns=["error_code"])["error_code"].to_pylist()
        except (OSError, ValueError, KeyError):  # pyarrow's own errors are of these kinds
            return None
        return Counter(code for code in codes if code is not None)

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None if it does not exist."""
        with self._reaching("read"):
            try:
                with self._filesystem.open_input_stream(f"{self._root}/{name}") as stream:
                    content: bytes = stream.read()
                    return content
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> None:
        with self._reaching("write"), suppress(FileNotFoundError):
            self._filesystem.delete_file(f"{self._root}/{name}")

    def remove_stale(self) -> None:
        """Remove what actors have left that died while they wrote."""
        if self.local is not None:
            with writing(self.local), Folder(self.local) as folder:
                remove_stale(folder)

    def put(self, name: str, content: bytes) -> None:
        """Write a file atomically. Object stores do so by themselves."""
        if self.local is not None:
            with writing(self.local / name), Folder(self.local) as folder, replacing_in(folder, name) as file:
                file.write(content)
            return
        with self._reaching("write"), self._filesystem.open_output_stream(f"{self._root}/{name}") as stream:
            stream.write(content)

    @contextmanager
    def _reaching(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot {verb} {shown(self.uri)}: {reason(error)}") from error
