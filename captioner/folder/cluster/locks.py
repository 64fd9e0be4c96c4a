"""One run at a time on one folder, also in a store without locks."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from captioner.errors import OutputError
from captioner.files.locks import hold_folder
from captioner.folder.cluster.parts import PartFolder
from captioner.folder.stores import shown

HEARTBEAT_S = 5.0
LEASE_S = 20.0
"""A run that has not renewed its lease for this long is considered dead."""
_CLAIM = ".captioner-run-"


@contextmanager
def hold(folder: PartFolder, report: Callable[[str], None]) -> Iterator[None]:
    """Hold an exclusive lock on the folder. Raises `OutputError` if another run holds it; `report`
    receives a message if finding out takes a while."""
    if folder.local is None:
        with _Lease(folder, report):
            yield
        return
    with hold_folder(folder.local):
        yield


class _Lease:
    """A lease for stores without locks: one object per run, rewritten periodically while the run lives.

    A run fails if it sees another run's object change. An object unchanged for `LEASE_S` belongs to a dead
    run. No clocks are compared. Two runs that start at the same moment may both fail.
    """

    def __init__(self, folder: PartFolder, report: Callable[[str], None]) -> None:
        self._folder, self._report = folder, report
        self._name = f"{_CLAIM}{uuid.uuid4().hex}"
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)

    def __enter__(self) -> Self:
        self._outlive_the_dead()
        self._folder.put(self._name, b"0")
        try:
            if self._others():
                raise self._taken()
        except BaseException:
            self._folder.remove(self._name)
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        with suppress(OutputError):  # it then expires
            self._folder.remove(self._name)

    def _outlive_the_dead(self) -> None:
        known = self._others()
        if known:
            self._report(f"waiting {LEASE_S:.0f} s to see whether an earlier run is still alive")
        end = time.monotonic() + LEASE_S
        while known and time.monotonic() < end:
            time.sleep(min(1.0, LEASE_S / 8))
            now = self._others()
            if any(content != known.get(name) for name, content in now.items()):
                raise self._taken()
            known = now
        for name in known:
            self._folder.remove(name)

    def _others(self) -> dict[str, bytes]:
        names = self._folder.names(_CLAIM) - {self._name}
        contents = {name: self._folder.read(name) for name in names}
        return {name: content for name, content in contents.items() if content is not None}

    def _taken(self) -> OutputError:
        return OutputError(f"another run is writing this output ({shown(self._folder.uri)})")

    def _live(self) -> None:
        beats = 0
        while not self._end.wait(HEARTBEAT_S):
            beats += 1
            try:
                self._folder.put(self._name, str(beats).encode())
            except OutputError:  # the store is away for a moment; the next beat tries again
                continue
