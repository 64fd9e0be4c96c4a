"""Disks that are small, full, or may not be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mounts on a folder of its own; skips the test where that is not allowed."""
    mounted: list[Path] = []

    def run(*arguments: str) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        done = subprocess.run(["mount", *arguments, place], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield run
    for place in mounted:
        subprocess.run(["umount", place], check=True)


@contextmanager
def filled(place: Path, leave: int) -> Iterator[None]:
    """The disk has `leave` bytes left meanwhile."""
    ballast = place / "ballast"
    status = os.statvfs(place)
    ballast.write_bytes(bytes(status.f_bavail * status.f_frsize - leave))
    yield
    ballast.unlink()
