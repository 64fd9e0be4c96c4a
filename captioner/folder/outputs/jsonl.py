"""JSON Lines: one record per line, in the order of the images, written as they finish."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO

from captioner.folder.outputs.files import check_folder, claim, partial_path, put_in_place, writing
from captioner.folder.outputs.options import OutputOptions, unchanged
from captioner.folder.state import Entry, State


class JsonlOutput:
    """At every moment the file is a prefix of the final output, except for a last line that may be incomplete
    when a run dies; the next run truncates that and resumes.

    If something changed in the middle of earlier output, a new file is written aside and replaces the old one
    when complete.
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
        """Length of the unchanged prefix of the file, in bytes."""
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
        """Whether the rest is at most one line without its end."""
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
            self._file.close()
            if self._aside:
                put_in_place(partial_path(self._path), self._path)
                self._aside = False

    def close(self) -> None:
        if self._file:
            self._file.close()
        if self._aside:
            partial_path(self._path).unlink(missing_ok=True)

    def _line(self, entry: Entry) -> bytes:
        if self._options.transform is unchanged:
            return f"{entry.line}\n".encode("ascii")
        return f"{json.dumps(self._options.transform(entry.record))}\n".encode("ascii")
