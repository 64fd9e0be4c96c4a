"""A folder that is held open, and what is rejected in it: links, and all that is no regular file."""

from __future__ import annotations

import copy
import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

NO_LINK, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)
_HAS_DIR_FD = {os.open, os.mkdir, os.rename, os.stat, os.unlink} <= os.supports_dir_fd
# With O_PATH, a folder that may be entered but not listed will do.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)


class Folder:
    """A folder that is held open: what is done here stays here, even if its path becomes a link meanwhile.

    Use as a context. Every method raises `OSError`, also for a link or anything else that is no regular file.
    """

    def __init__(self, path: Path, *below: str, create: bool = False) -> None:
        """Open `path`, which may be a link, and the folder that the names in `below` lead to, through no
        link."""
        self.path = path
        if create:
            path.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, _FOLDER) if _HAS_DIR_FD else None
        self._enter(below, create)

    def below(self, *names: str, create: bool = False) -> Self:
        """The folder that `names` lead to from this one, through no link, wherever this one is by now."""
        folder = copy.copy(self)
        folder._descriptor = None if self._descriptor is None else os.dup(self._descriptor)
        folder._enter(names, create)
        return folder

    def _enter(self, names: Sequence[str], create: bool) -> None:
        path, self.path = self.path, self.path.joinpath(*names)
        try:
            for name in names:
                path /= name
                if self._descriptor is None:
                    _enter(path, create)
                else:
                    self._descend(name, create)
        except BaseException:
            self.close()
            raise

    def _descend(self, part: str, create: bool) -> None:
        outer = self._descriptor
        if create:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=outer)
        if (status := self.look(part)) is not None and _is_link(status):
            raise rejection(errno.ELOOP, "a folder on its path is a link", self.path)
        self._descriptor = os.open(part, _FOLDER | NO_LINK, dir_fd=outer)
        if outer is not None:
            os.close(outer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        """A run that fails early leaves no folder open: its disk could not be removed."""
        if getattr(self, "_descriptor", None) is not None:
            self.close()

    def look(self, name: str) -> os.stat_result | None:
        """The status of a file, or of the link itself; None if there is nothing."""
        try:
            return os.stat(self._path(name), dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except ValueError:  # a null byte
            raise rejection(errno.EINVAL, "not a valid name", self.path) from None

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a regular file."""
        if (status := self.look(name)) is not None:
            _check_regular(status, self.path / name)
        flags |= NO_LINK | _NO_WAIT | BINARY
        descriptor = os.open(self._path(name), flags, mode, dir_fd=self._descriptor)
        try:
            _check_regular(os.fstat(descriptor), self.path / name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, name: str, most: int = -1) -> bytes | None:
        """The content of a file, or its first `most` bytes; None if there is none."""
        if self.look(name) is None:
            return None
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            return file.read(most)

    def remove(self, name: str) -> None:
        """Remove a file, or a link itself, if there is one."""
        with suppress(FileNotFoundError):
            os.unlink(self._path(name), dir_fd=self._descriptor)

    def check_replaceable(self, name: str) -> os.stat_result | None:
        """Raise `OSError` for what may not get a new content: no regular file, or read-only. Returns the
        status, None if there is no such file."""
        status = self.look(name)
        if status is None:
            return None
        _check_regular(status, self.path / name)
        path, descriptor = self._path(name), self._descriptor
        # Root may write anyway, but a file without write permission was protected on purpose.
        if not status.st_mode & 0o222 or not os.access(path, os.W_OK, dir_fd=descriptor):
            whole = hasattr(os, "statvfs") and os.statvfs(self.path).f_flag & os.ST_RDONLY
            reason = os.strerror(errno.EROFS) if whole else "it is read-only"
            raise rejection(errno.EACCES, reason, self.path / name)
        return status

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path(old), self._path(new), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def sync(self) -> None:
        """Make renames durable, where the system can."""
        with suppress(OSError):
            # A descriptor that only names the folder cannot be synced.
            descriptor = os.open(self._path("."), os.O_RDONLY, dir_fd=self._descriptor)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _path(self, name: str) -> str | Path:
        return self.path / name if self._descriptor is None else name


def rejection(number: int, reason: str, path: Path) -> OSError:
    """The error for a path that is not used; `number` is one of `errno`."""
    return OSError(number, reason, str(path))


def _check_regular(status: os.stat_result, path: Path) -> None:
    """Raise `OSError` for what is no regular file."""
    if _is_link(status):
        raise rejection(errno.ELOOP, "it is a link", path)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise rejection(errno.EISDIR if kind == "a folder" else errno.EINVAL, f"it is {kind}", path)


def _enter(path: Path, create: bool) -> None:
    """As `Folder._descend`, where folders cannot be held open."""
    if create:
        path.mkdir(exist_ok=True)
    if _is_link(path.lstat()):
        raise rejection(errno.ELOOP, "a folder on its path is a link", path)


def _is_link(status: os.stat_result) -> bool:
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or (
        junction is not None and getattr(status, "st_reparse_tag", 0) == junction
    )
