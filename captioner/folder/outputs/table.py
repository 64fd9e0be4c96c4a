"""Outputs that consist of one file, written when all images are done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.place import Place, check_folder, claim, find_state
from captioner.folder.state import State
from captioner.folder.transform import Record
from captioner.surrogates import to_unicode


class Table(ABC):
    """Base class of tables: a subclass writes all records to a file in one pass."""

    def __init__(self, path: Path, options: OutputOptions) -> None:
        check_folder(path)
        self._path, self._options = path, options
        self.state_path, self.files = find_state(path), (path,)
        self._place: Place | None = None

    def begin(self, state: State) -> None:
        self._place = claim(self._path, state)
        self._place.check_writable()  # better to know now than after hours

    def advance(self, state: State) -> None:  # noqa: B027
        """Does nothing: a table is written at the end."""

    def finish(self, state: State) -> None:
        assert self._place
        with self._place.replacing() as file:
            self.write(file, (self._options.transform(entry.record) for entry in state.ready(-1)))

    def close(self) -> None:
        if self._place is not None:
            self._place.close()

    @abstractmethod
    def write(self, file: IO[bytes], records: Iterator[Record]) -> None:
        """Write all records in order."""


def flatten(record: Record) -> dict[str, Any]:
    """The columns common to all tables, as Unicode."""
    record = to_unicode(record)
    error = record.get("error", {})
    return {
        "image": record["image"],
        "caption": record.get("caption"),
        "log_prob": record.get("log_prob"),
        "confidence": record.get("confidence"),
        "model": record.get("model"),
        "error_code": error.get("code"),
        "error_message": error.get("message"),
    }


COLUMNS = tuple(flatten({"image": ""}))
