"""Locks on what is being written, where the system has them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from captioner.errors import OutputError, reason_of
from captioner.files.new_folders import missing_folders, remove_empty

try:
    import fcntl
except ImportError:  # Windows, which deletes no file that is open
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None
_TURN_S = 10.0


@contextmanager
def taking_turns(path: Path) -> Iterator[None]:
    """Let one process at a time, and one thread, change the output `path`, or the file that it leads to, by a
    lock on its folder where the system has one. Raises `OutputError` if another takes longer than 10 s."""
    with ExitStack() as held:
        with suppress(OSError):  # not on every system
            # Not `Path.resolve`, which raises a RuntimeError for a link that leads to itself.
            descriptor = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)  # noqa: PTH120
            held.callback(os.close, descriptor)
            end = time.monotonic() + _TURN_S
            while not _has_lock(descriptor):
                if time.monotonic() > end:
                    raise OutputError(f"cannot write {path}: another process holds the lock of its folder")
                time.sleep(0.01)
        yield


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder of this machine, which is made if it is not there, and then
    removed if it stays empty. Raises `OutputError` if another run holds it, and if it cannot be written."""
    from filelock import FileLock, Timeout

    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is there already, and is no folder")
    path = folder / ".captioner.lock"
    held, missing = FileLock(path), missing_folders(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held.acquire(blocking=False)
    except Timeout:
        raise OutputError(f"another run is writing this output ({path} is in use)") from None
    except OSError as error:
        raise OutputError(f"cannot write {folder}: {reason_of(error)}") from None
    try:
        yield
    finally:
        with suppress(OSError):
            if list(folder.iterdir()) == [path]:
                path.unlink()
                remove_empty(missing)
        held.release()


def lock(descriptor: int) -> None:
    """Lock what is open, until it is closed. Raises `BlockingIOError` if another holds it, and other
    `OSError`s on file systems without locks."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_at(descriptor: int, there: os.stat_result | None) -> bool:
    """Whether what is open is still what is found at its name."""
    return there is not None and os.path.samestat(os.fstat(descriptor), there)


def _has_lock(descriptor: int) -> bool:
    """Whether this process has the lock now, and no other."""
    try:
        lock(descriptor)
    except BlockingIOError:
        return False
    return True
