"""Optimised graphs on disk, so that ONNX Runtime does not optimise them and round weights at every start.

Each graph has a folder in the user's cache with `graph.onnx`, its weights in `weights.bin`, which ONNX
Runtime maps into memory, and `checksums.json`. The name of the folder is a digest of what the graph was made
from: bundle, graph, precision, ONNX Runtime and processor. A folder appears whole or not at all, and may be
deleted at any time. If the cache cannot be read, written or trusted, the start only takes longer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from captioner.model.graphs.precision import processor

GRAPH, WEIGHTS, CHECKSUMS = "graph.onnx", "weights.bin", "checksums.json"
MOST_ENTRIES = 8
"""Graphs to keep, those used last; each precision of a model has two."""
_VERSION = 1
"""Version of the contents of a folder."""
_IN_WORK, _ABANDONED_S = ".new-", 3600.0
_CHUNK = 2**20


class GraphCache:
    """The cache of a user. Safe for several threads and processes."""

    def __init__(self, folder: Path | None) -> None:
        """`folder` is created when first written to; with None, nothing is cached."""
        self._folder = folder

    @classmethod
    def of_user(cls) -> GraphCache:
        return cls(user_folder())

    def session(
        self, made_from: str, build: Callable[[Path | None], Any], load: Callable[[Path], Any]
    ) -> Any:
        """A session with the graph that `made_from` identifies.

        `build` creates it, and saves the optimised graph in the folder that it receives, if any, as `GRAPH`
        and `WEIGHTS`; `load` creates it from such a graph. Raises what `build` raises.
        """
        name = hashlib.sha256(f"{_VERSION} {made_from} {processor()}".encode()).hexdigest()[:32]
        with suppress(Exception):  # ONNX Runtime's own exceptions share no public base
            if entry := self._find(name):
                return load(entry / GRAPH)
        with suppress(Exception), self._new(name) as folder:
            return build(folder)
        return build(None)

    def _find(self, name: str) -> Path | None:
        """The folder of a graph, if its files are intact; a damaged one is deleted."""
        if self._folder is None or not is_ours(self._folder):
            return None
        entry = self._folder / name
        if not is_ours(entry):
            return None
        try:
            whole = json.loads((entry / CHECKSUMS).read_bytes()) == _checksums(entry)
        except (OSError, ValueError):
            whole = False
        if not whole:
            shutil.rmtree(entry, ignore_errors=True)
            return None
        with suppress(OSError):
            os.utime(entry)
        return entry

    @contextmanager
    def _new(self, name: str) -> Iterator[Path]:
        """A folder to write a graph to; it is kept unless an error is raised. Raises `OSError`."""
        if self._folder is None:
            raise OSError("there is no cache")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_ours(self._folder):
            raise OSError("others can write to the cache")
        folder = Path(tempfile.mkdtemp(prefix=_IN_WORK, dir=self._folder))
        try:
            yield folder
            with suppress(OSError):  # another process was quicker; the disk is full
                (folder / CHECKSUMS).write_text(json.dumps(_checksums(folder)))
                folder.rename(self._folder / name)
                self._prune()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _prune(self) -> None:
        """Delete the least recently used graphs, and folders of interrupted processes."""
        assert self._folder is not None
        now = time.time()  # noqa: TID251 (the times of files are of the same clock)
        ages = {entry: now - entry.stat().st_mtime for entry in self._folder.iterdir()}
        kept = sorted((one for one in ages if not one.name.startswith(_IN_WORK)), key=ages.__getitem__)
        left = [one for one in ages if one.name.startswith(_IN_WORK) and ages[one] > _ABANDONED_S]
        for entry in [*kept[MOST_ENTRIES:], *left]:
            shutil.rmtree(entry, ignore_errors=True)


def user_folder() -> Path | None:
    """The cache folder of the system; None for a user without a home."""
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            given = os.environ.get("XDG_CACHE_HOME", "")
            base = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "captioner" / "graphs"


def is_ours(folder: Path) -> bool:
    """Whether it is a folder, not a link, that only this user can write to."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    return os.name == "nt" or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def _checksums(folder: Path) -> dict[str, int]:
    """Checksums of the files of a graph, against damage. Raises `OSError`."""
    return {name: _checksum(folder / name) for name in (GRAPH, WEIGHTS) if (folder / name).exists()}


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found = zlib.crc32(chunk, found)
    return found
