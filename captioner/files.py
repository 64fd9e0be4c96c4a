"""Files written whole or not at all, and only where they are meant to be.

New content goes into a file with a random name in the same folder, which must not exist yet, and takes its
place with one rename. The folder is held open meanwhile. In a folder that others can write to, a link planted
at a name that can be guessed then leads nowhere: links are followed only in the path that the user gave.
"""

from __future__ import annotations

import copy
import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import IO, NamedTuple, Self

from captioner.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows, which deletes no file that is open
    fcntl = None  # type: ignore[assignment]

_HAS_DIR_FD = {os.open, os.mkdir, os.rename, os.stat, os.unlink} <= os.supports_dir_fd
_NO_LINK, _NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
# With O_PATH, a folder that may be entered but not listed will do.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_DESCRIPTORS = ("/dev/std", "/dev/fd/", "/proc/")
_PARTIAL = re.compile(r"\.captioner-[0-9a-f]{16}\.partial")
_STALE_S = 60.0
_LONGEST_NAME = 255 - len("-journal")
"""Bytes of a name, with room for what SQLite adds."""
_MOST_LINKS = 40
_TURN_S = 10.0


class Destination(NamedTuple):
    """Where the output goes that a user gave as a path."""

    path: Path
    is_stream: bool
    """Whether it is written to and never replaced: a device, a pipe, or a file that is open already."""


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
            raise _refusal(errno.ELOOP, "a folder on its path is a link", self.path)
        self._descriptor = os.open(part, _FOLDER | _NO_LINK, dir_fd=outer)
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
            raise _refusal(errno.EINVAL, "not a valid name", self.path) from None

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a regular file."""
        if (status := self.look(name)) is not None:
            check_regular(status, self.path / name)
        flags |= _NO_LINK | _NO_WAIT | _BINARY
        descriptor = os.open(self._path(name), flags, mode, dir_fd=self._descriptor)
        try:
            check_regular(os.fstat(descriptor), self.path / name)
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

    def remove_stale(self, after_s: float = _STALE_S) -> None:
        """Remove what killed runs have left: files of `Partial` that no process holds."""
        names = [path.name for path in self.path.iterdir() if _PARTIAL.fullmatch(path.name)]
        for name in names:
            with suppress(OSError):
                status = self.look(name)
                now = time.time()  # noqa: TID251 (the time of the file is of the same clock)
                if status is None or now - status.st_mtime < after_s:
                    continue  # a process may have made it and not locked it yet
                descriptor = self.open(name, os.O_RDWR)
                try:
                    _lock(descriptor)
                    self.remove(name)
                finally:
                    os.close(descriptor)

    def check_replaceable(self, name: str) -> os.stat_result | None:
        """Raise `OSError` for what may not get a new content: no regular file, or read-only. Returns the
        status, None if there is no such file."""
        status = self.look(name)
        if status is None:
            return None
        check_regular(status, self.path / name)
        path, descriptor = self._path(name), self._descriptor
        # Root may write anyway, but a file without write permission was protected on purpose.
        if not status.st_mode & 0o222 or not os.access(path, os.W_OK, dir_fd=descriptor):
            whole = hasattr(os, "statvfs") and os.statvfs(self.path).f_flag & os.ST_RDONLY
            reason = os.strerror(errno.EROFS) if whole else "it is read-only"
            raise _refusal(errno.EACCES, reason, self.path / name)
        return status

    @contextmanager
    def replacing(
        self, name: str, *, durable: bool = True, irreplaceable: bool = False
    ) -> Iterator[IO[bytes]]:
        """A binary file that takes the place of `name` if the block ends without an error; see `Partial`."""
        partial = Partial(self, name)
        try:
            yield partial.file
            partial.commit(durable=durable, irreplaceable=irreplaceable)
        finally:
            partial.discard()

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


class Partial:
    """The next content of a file, beside it until `commit` puts it in place. Methods raise `OSError`.

    A file that is there keeps its mode, owner and extended attributes. Where a new file cannot have them, or
    the old one has several names (hard links), its content is exchanged instead, which a kill may interrupt.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        """Raises `OSError` if `name` may not be replaced (`Folder.check_replaceable`)."""
        self._folder, self._name = folder, name
        self._before = folder.check_replaceable(name)
        self._aside: str | None = f".captioner-{secrets.token_hex(8)}.partial"
        flags, mode = os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if self._before is None else 0o600
        self.file: IO[bytes] = os.fdopen(folder.open(self._aside, flags, mode), "w+b")
        with suppress(OSError):  # not on every file system
            _lock(self.file.fileno())

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
            self.file.close()
            self._folder.rename(self._aside, self._name)
            self._aside = None
        elif irreplaceable:
            several = self._before is not None and self._before.st_nlink > 1
            why = "it has several names (hard links)" if several else "it would have another owner or mode"
            raise _refusal(errno.EPERM, why, self._folder.path / self._name)
        else:
            self._exchange()
        if durable:
            self._folder.sync()

    def _check_unchanged(self, before: os.stat_result) -> None:
        now = self._folder.look(self._name)
        if now is None or any(
            getattr(now, field) != getattr(before, field) for field in ("st_ino", "st_size", "st_mtime_ns")
        ):
            raise _refusal(errno.EBUSY, "it has changed meanwhile", self._folder.path / self._name)

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


def find_destination(path: Path) -> Destination:
    """Where an output goes: to `path`, or where the user's links lead.

    A link is followed if it is the user's own, or root's, and leads to something that is there or to a name
    below its own folder. Raises `OSError` for any other.
    """
    place = path
    for _ in range(_MOST_LINKS):
        try:
            status = os.lstat(place)
        except (FileNotFoundError, ValueError):
            return Destination(_check_new(path, place), False)
        if str(place).startswith(_DESCRIPTORS):
            return Destination(place, True)
        if not stat.S_ISLNK(status.st_mode):
            return Destination(place, not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)))
        if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
            raise _refusal(errno.EPERM, "it is a link of another user; give the file that it leads to", path)
        place = place.parent / place.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _check_new(path: Path, place: Path) -> Path:
    if place != path and not place.parent.resolve().is_relative_to(path.parent.resolve()):
        why = f"it is a link to {place}, which is not there; make that file, or give it as the output"
        raise _refusal(errno.ENOENT, why, path)
    return place


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` into an `OutputError` that names the output."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of the output `path`, or of the file that it leads to, if the block
    ends without an error; devices and pipes are written to instead. Raises `OutputError`."""
    with writing(path):
        place, is_stream = find_destination(path)
        if is_stream:
            with tempfile.TemporaryFile() as file:
                yield file
                file.seek(0)
                with open_stream(place) as stream:
                    shutil.copyfileobj(file, stream)
            return
        with Folder(place.parent) as folder:
            folder.remove_stale()
            with folder.replacing(place.name) as file:
                yield file


@contextmanager
def taking_turns(path: Path) -> Iterator[None]:
    """Let one process at a time, and one thread, change the output `path`, or the file that it leads to, by a
    lock on its folder where the system has one. Raises `OutputError` if another takes longer than 10 s."""
    with ExitStack() as held:
        with suppress(OSError):  # not on every system
            descriptor = os.open(path.resolve().parent, os.O_RDONLY)
            held.callback(os.close, descriptor)
            end = time.monotonic() + _TURN_S
            while not _has_lock(descriptor):
                if time.monotonic() > end:
                    raise OutputError(f"cannot write {path}: another process holds the lock of its folder")
                time.sleep(0.01)
        yield


def publish_folder(folder: Path, path: Path) -> None:
    """Rename a folder to `path`, where nothing may be but an empty folder, once all that it holds is on the
    disk. Raises `OSError`."""
    sync_folder(folder)
    folder.rename(path)
    with Folder(path.parent) as parent:
        parent.sync()


def sync_folder(folder: Path) -> None:
    """Return once all that a folder holds is on the disk. Raises `OSError`."""
    for place, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(place, name), os.O_RDWR | _NO_LINK | _BINARY)  # noqa: PTH118
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        with Folder(Path(place)) as one:
            one.sync()


def check_writable(path: Path) -> None:
    """Raise `OutputError` if the output `path` could not be written now."""
    with writing(path):
        place, is_stream = find_destination(path)
        if not is_stream:
            with Folder(place.parent) as folder:
                Partial(folder, place.name).discard()


def open_stream(path: Path) -> IO[bytes]:
    """Open a device, a pipe or a descriptor for writing. Raises `OSError`."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | _BINARY), "wb")


def beside(path: Path, suffix: str) -> Path:
    """The path of a file that belongs to another: its name and a suffix, shortened where that is too long for
    a file system."""
    name = path.name
    digest = blake2b(os.fsencode(name), digest_size=8).hexdigest()
    while len(os.fsencode(name + suffix)) > _LONGEST_NAME:
        shorter = name.removesuffix(f"~{digest}")[:-1]
        name = f"{shorter}~{digest}"
    return path.with_name(name + suffix)


def check_regular(status: os.stat_result, path: Path) -> None:
    """Raise `OSError` for what is no regular file."""
    if _is_link(status):
        raise _refusal(errno.ELOOP, "it is a link", path)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise _refusal(errno.EISDIR if kind == "a folder" else errno.EINVAL, f"it is {kind}", path)


def _enter(path: Path, create: bool) -> None:
    """As `Folder._descend`, where folders cannot be held open."""
    if create:
        path.mkdir(exist_ok=True)
    if _is_link(path.lstat()):
        raise _refusal(errno.ELOOP, "a folder on its path is a link", path)


def _is_link(status: os.stat_result) -> bool:
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or (
        junction is not None and getattr(status, "st_reparse_tag", 0) == junction
    )


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _has_lock(descriptor: int) -> bool:
    """Whether this process has the lock now, and no other."""
    try:
        _lock(descriptor)
    except BlockingIOError:
        return False
    return True


def _refusal(number: int, reason: str, path: Path) -> OSError:
    return OSError(number, reason, str(path))
