"""Files that are read again when they change, known by their content, without ever waiting for a pipe."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path


def read_file(path: Path | None) -> bytes | None:
    """The content of a regular file; None if there is none or it cannot be read."""
    try:
        return None if path is None else read_whole(path)
    except OSError:
        return None


def read_whole(path: Path, pipe_s: float = 0.0) -> bytes:
    """The content of a regular file. Raises `OSError`, also for a folder, a device or a pipe, which might
    keep the server waiting; with `pipe_s`, a pipe is read too if its writers end within so many seconds."""
    with open(path, "rb", buffering=0, opener=_open_at_once) as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return file.read()
        if not (stat.S_ISFIFO(mode) and pipe_s):
            raise OSError(errno.EINVAL, "it is not a regular file")
        content, ends = b"", time.monotonic() + pipe_s
        while select.select([file], [], [], max(0.0, ends - time.monotonic()))[0]:
            if not (piece := file.read(2**16)):
                return content
            content += piece
        raise OSError(errno.ETIMEDOUT, "what writes into this pipe does not end")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
