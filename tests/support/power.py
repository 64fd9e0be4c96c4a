"""What would be left after a power failure: only what was synced, in the order that the system was told."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


class Disk:
    """Watches renames. A name that reaches the disk before its content, or a rename that is never synced, is
    `lost` when the power fails."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self._synced: dict[int, tuple[int, int]] = {}
        self._early: list[str] = []
        self._waiting: dict[int, list[str]] = {}

    @property
    def lost(self) -> list[str]:
        return self._early + [name for names in self._waiting.values() for name in names]

    def sync(self, status: os.stat_result) -> None:
        self._synced[status.st_ino] = (status.st_size, status.st_mtime_ns)
        self._waiting.pop(status.st_ino, None)

    def rename(self, old: os.stat_result, below: list[os.stat_result], name: str, folder: int) -> None:
        self.published.append(name)
        if any(self._synced.get(one.st_ino) != (one.st_size, one.st_mtime_ns) for one in (old, *below)):
            self._early.append(name)
        self._waiting.setdefault(folder, []).append(name)


@contextmanager
def watched() -> Iterator[Disk]:
    """Everything that this process renames meanwhile."""
    disk, sync = Disk(), os.fsync

    def watch_sync(descriptor: int) -> None:
        sync(descriptor)
        disk.sync(os.fstat(descriptor))

    def watch(rename: Callable[..., None]) -> Callable[..., None]:
        def renamed(old: Any, new: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
            status = os.stat(old, dir_fd=src_dir_fd)
            below = [] if src_dir_fd is not None else [one.stat() for one in Path(old).rglob("*")]
            parent = os.path.dirname(new) or "."  # noqa: PTH120
            folder = os.stat(parent, dir_fd=dst_dir_fd).st_ino
            rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            disk.rename(status, below, os.path.basename(new), folder)  # noqa: PTH119

        return renamed

    with (
        mock.patch("os.fsync", watch_sync),
        mock.patch("os.replace", watch(os.replace)),
        mock.patch("os.rename", watch(os.rename)),
    ):
        yield disk
