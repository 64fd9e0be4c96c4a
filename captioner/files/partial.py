"""The next content of a file, beside it until it takes its place."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from captioner.files.held_folder import Folder, rejection
from captioner.files.locks import HAS_LOCKS, is_at, lock

_PARTIAL = re.compile(r"\.captioner-[0-9a-f]{16}\.partial")
_YOUNG_S = 60.0


class Partial:
    """The next content of a file, beside it until `commit` puts it in place. Methods raise `OSError`.

    A file that is there keeps its mode, owner and extended attributes. Where a new file cannot have them, or
    the old one has several names (hard links), its content is exchanged instead, which a kill may interrupt.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        """Raises `OSError` if `name` may not be replaced (`Folder.check_replaceable`)."""
        self._folder, self._name = folder, name
        self._before = folder.check_replaceable(name)
        self._aside: str | None = None
        self._create()
        while not self._is_held():
            self.discard()
            self._create()

    def _create(self) -> None:
        self._aside = f".captioner-{secrets.token_hex(8)}.partial"
        flags, mode = os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if self._before is None else 0o600
        self.file: IO[bytes] = os.fdopen(self._folder.open(self._aside, flags, mode), "w+b")

    def _is_held(self) -> bool:
        """Lock the file. False if `remove_stale` of another run has come between making and locking it."""
        assert self._aside is not None
        try:
            lock(self.file.fileno())
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks, where `remove_stale` removes nothing
            return True
        return is_at(self.file.fileno(), self._folder.look(self._aside))

    def commit(self, *, durable: bool = True, irreplaceable: bool = False) -> None:
        """Put the content in place. `durable` content is on the disk before its name is. An `irreplaceable`
        file also keeps its times, and `OSError` is raised rather than its content exchanged, or replaced
        although it has changed meanwhile."""
        assert self._aside is not None
        self.file.flush()
        if irreplaceable and self._before is not None:
            self._check_unchanged(self._before)
            keep = self.file.fileno() if os.utime in os.supports_fd else self._folder.path / self._aside
            os.utime(keep, ns=(self._before.st_atime_ns, self._before.st_mtime_ns))
        keeps = self._before is None or self._keep_status(self._before)
        if durable:
            os.fsync(self.file.fileno())
        if keeps:
            if not HAS_LOCKS:  # Windows renames no file that is open
                self.file.close()
            self._folder.rename(self._aside, self._name)  # it is locked until it has its name
            self._aside = None
            self.file.close()
        elif irreplaceable:
            several = self._before is not None and self._before.st_nlink > 1
            why = "it has several names (hard links)" if several else "it would have another owner or mode"
            raise rejection(errno.EPERM, why, self._folder.path / self._name)
        else:
            self._exchange()
        if durable:
            self._folder.sync()

    def _check_unchanged(self, before: os.stat_result) -> None:
        now = self._folder.look(self._name)
        if now is None or any(
            getattr(now, field) != getattr(before, field) for field in ("st_ino", "st_size", "st_mtime_ns")
        ):
            raise rejection(errno.EBUSY, "it has changed meanwhile", self._folder.path / self._name)

    def discard(self) -> None:
        """Remove what was not put in place."""
        with suppress(OSError):
            self.file.close()
        if self._aside is not None:
            with suppress(OSError):
                self._folder.remove(self._aside)
            self._aside = None

    def _keep_status(self, before: os.stat_result) -> bool:
        """Give the new file the owner, mode and attributes of the old one; False if that is not possible."""
        if before.st_nlink > 1:
            return False
        new, now = self.file.fileno(), os.fstat(self.file.fileno())
        try:
            if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
                os.chown(new, before.st_uid, before.st_gid)
            if hasattr(os, "listxattr"):
                self._keep_attributes(new)
            if stat.S_IMODE(now.st_mode) != stat.S_IMODE(before.st_mode) and hasattr(os, "fchmod"):
                os.fchmod(new, stat.S_IMODE(before.st_mode))
        except OSError:
            return False
        return True

    def _keep_attributes(self, new: int) -> None:
        old = self._folder.open(self._name, os.O_RDONLY)
        try:
            for name in os.listxattr(old):
                with suppress(OSError):  # those of security modules are set by the system
                    os.setxattr(new, name, os.getxattr(old, name))
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.ENOSYS):
                raise
        finally:
            os.close(old)

    def _exchange(self) -> None:
        with os.fdopen(self._folder.open(self._name, os.O_WRONLY), "wb", closefd=True) as file:
            self.file.seek(0)
            shutil.copyfileobj(self.file, file)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def replacing_in(
    folder: Folder, name: str, *, durable: bool = True, irreplaceable: bool = False
) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `name` if the block ends without an error; see `Partial`."""
    partial = Partial(folder, name)
    try:
        yield partial.file
        partial.commit(durable=durable, irreplaceable=irreplaceable)
    finally:
        partial.discard()


def remove_stale(folder: Folder) -> None:
    """Remove what killed runs have left: files of `Partial` that no process holds."""
    names = [path.name for path in folder.path.iterdir() if _PARTIAL.fullmatch(path.name)]
    for name in names:
        with suppress(OSError):
            if not HAS_LOCKS and _is_young(folder, name):
                continue
            descriptor = folder.open(name, os.O_RDWR)
            try:
                lock(descriptor)
                if is_at(descriptor, folder.look(name)):
                    folder.remove(name)
            finally:
                os.close(descriptor)


def _is_young(folder: Folder, name: str) -> bool:
    """Whether a process may have closed the file and not yet renamed it."""
    status = folder.look(name)
    now = time.time()  # noqa: TID251 (the time of the file is of the same clock)
    return status is None or now - status.st_mtime < _YOUNG_S
