"""The folders that an assistant may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from captioner.errors import DataError, ImageUnreadableError, clip
from captioner.folder.sources.files import read_regular
from captioner.images.limits import DEFAULT_LIMITS


class AllowedFolders:
    """Finds files by names that an assistant gives, below these folders only."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Raises `DataError` for what is no folder."""
        for folder in folders:
            if not folder.is_dir():
                raise DataError(f"{folder}: there is no such folder")
        self.roots = tuple(Path(os.path.realpath(folder)) for folder in folders)

    def find(self, name: str) -> Path:
        """The file or folder of that name, absolute or below one of the folders, with all links resolved.

        Raises `DataError` for what is neither, such as a pipe, and if there is none. The error is then the
        same for what lies elsewhere, which is nobody's business."""
        path = self._resolve(name)
        if path is None:
            raise self._missing(name)
        if not (path.is_file() or path.is_dir()):
            raise DataError(f"{clip(name, 200)} is neither a file nor a folder")
        return path

    def read(self, path: Path) -> bytes:
        """The content of a photo whose path was found. Raises an `ImageError`, also if its name has come to
        be that of a pipe, or of a link that leads elsewhere."""
        content, status = read_regular(path, DEFAULT_LIMITS.max_bytes)
        real = self._resolve(str(path))
        with suppress(OSError):  # it has just been deleted
            if real is not None and os.path.samestat(status, real.stat()):
                return content
        raise ImageUnreadableError("no longer the file that was asked for")

    def place(self, name: str) -> Path:
        """Where to write a new file of that name, in a folder that is there. Raises `DataError`."""
        given = Path(name)
        if given.name in ("", ".."):
            raise self._missing(name)
        return self.find(str(given.parent)) / given.name

    def name(self, path: Path) -> str:
        """The shortest name by which `find` finds a path that it returned."""
        for root in self.roots:
            if path.is_relative_to(root):
                short = path.relative_to(root).as_posix()
                return short if self._resolve(short) == path else str(path)
        return str(path)

    def _resolve(self, name: str) -> Path | None:
        for root in self.roots:
            try:
                path = Path(os.path.realpath(root / name))
                if path.is_relative_to(root) and path.exists():
                    return path
            except (OSError, ValueError):  # a name that is too long, or has a null byte
                continue
        return None

    def _missing(self, name: str) -> DataError:
        roots = ", ".join(map(str, self.roots))
        return DataError(f"{clip(name, 200)} is not below a folder that may be used ({roots})")
