"""JSON Lines: a record a line, in the order of the images, written as they are done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

from captioner.folder.outputs.files import check_folder, claim, partial_path, put_in_place, writing
from captioner.folder.outputs.options import OutputOptions, unchanged
from captioner.folder.state import Entry, State


class JsonlOutput:
    """At every moment the file is the beginning of what it will be in the end, but for a last line that
    may be torn when a run dies; the next run takes that off and goes on.

    When instead something has changed in the middle of what an earlier run wrote, the new file is
    written aside and takes the place of the old one when it is whole.
    """

    def __init__(self, path: Path, options: OutputOptions) -> None:
        check_folder(path)
        self._path, self._options = path, options
        self.state_path = path.with_name(f"{path.name}.state")
        self._file: IO[bytes] | None = None
        self._aside = False
        self._last = -1

    def begin(self, state: State) -> None:
        claim(self._path, state)
        with writing(self._path):
            size = self._path.stat().st_size if self._path.exists() else 0
            same = self._measure_same(state) if size else 0
            self._aside = not (same == size or self._is_torn(same))
            self._file = partial_path(self._path).open("wb") if self._aside else self._path.open("ab")
            if self._aside:
                self._last = -1
            else:
                self._file.truncate(same)
        self.advance(state)

    def _measure_same(self, state: State) -> int:
        """Bytes at the start of the file that are as they should be."""
        same = 0
        with self._path.open("rb") as file:
            for entry in state.ready(-1):
                line = self._line(entry)
                if file.read(len(line)) != line:
                    break
                same += len(line)
                self._last = entry.number
        return same

    def _is_torn(self, same: int) -> bool:
        """Whether what follows is no more than one line without its end."""
        with self._path.open("rb") as file:
            file.seek(same)
            return not file.readline().endswith(b"\n")

    def advance(self, state: State) -> None:
        assert self._file
        with writing(self._path):
            for entry in state.ready(self._last):
                self._file.write(self._line(entry))
                self._last = entry.number
            self._file.flush()

    def finish(self, state: State) -> None:
        self.advance(state)
        assert self._file
        with writing(self._path):
            os.fsync(self._file.fileno())
            self.close()
            if self._aside:
                put_in_place(partial_path(self._path), self._path)

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def _line(self, entry: Entry) -> bytes:
        if self._options.shape is unchanged:
            return f"{entry.line}\n".encode("ascii")
        return f"{json.dumps(self._options.shape(entry.record))}\n".encode("ascii")
