"""JSON Lines: one record per line, in the order of the images, written as they finish."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from captioner.files.destination import open_stream, writing
from captioner.files.held_folder import Folder
from captioner.files.partial import Partial, remove_stale
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.place import check_folder, claim, find_state
from captioner.folder.records import keywords_of_record
from captioner.folder.state import Entry, State
from captioner.folder.transform import unchanged
from captioner.readable_json import dump_record


class JsonlOutput:
    """At every moment the file is a prefix of the final output, except for a last line that may be incomplete
    when a run dies; the next run truncates that and resumes.

    If something changed in the middle of earlier output, a new file is written aside and replaces the old one
    when complete.
    """

    def __init__(self, path: Path, options: OutputOptions) -> None:
        check_folder(path)
        self._path, self._options = path, options
        self.state_path, self.files = find_state(path), (path,)
        self._file: IO[bytes] | None = None
        self._aside: Partial | None = None
        self._open = ExitStack()
        self._last = -1

    def begin(self, state: State) -> None:
        place = self._open.enter_context(claim(self._path, state))
        with writing(self._path):
            if place.folder is None:
                self._file = self._open.enter_context(open_stream(place.path))
            else:
                self._begin_file(place.folder, place.path.name, state)
        self.advance(state)

    def _begin_file(self, folder: Folder, name: str, state: State) -> None:
        remove_stale(folder)
        folder.check_replaceable(name)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._file = file = self._open.enter_context(os.fdopen(folder.open(name, flags), "a+b"))
        size, same = os.fstat(file.fileno()).st_size, self._measure_same(state, file)
        if same == size or self._is_torn(file, same):
            file.truncate(same)
        else:
            file.close()
            self._aside, self._last = Partial(folder, name), -1
            self._open.callback(self._aside.discard)
            self._file = self._aside.file

    def _measure_same(self, state: State, file: IO[bytes]) -> int:
        """Length of the unchanged prefix of the file, in bytes."""
        same = 0
        file.seek(0)
        for entry in state.ready(-1):
            line = self._line(entry)
            if file.read(len(line)) != line:
                break
            same += len(line)
            self._last = entry.number
        return same

    def _is_torn(self, file: IO[bytes], same: int) -> bool:
        """Whether the rest is at most one line without its end."""
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
            if self._aside is not None:
                self._aside.commit()
            elif self.state_path is not None:
                os.fsync(self._file.fileno())

    def close(self) -> None:
        self._open.close()

    def _line(self, entry: Entry) -> bytes:
        keywords = self._options.keywords
        if self._options.transform is unchanged and not keywords and "\\u" not in entry.line:
            return f"{entry.line}\n".encode("ascii")
        record = self._options.transform(entry.record)
        if keywords and "caption" in record:
            record = {**record, "keywords": list(keywords_of_record(record))}
        return f"{dump_record(record)}\n".encode()
