"""Captions of an earlier run, from its JSON Lines, for a folder run that writes them in other formats."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.errors import DataError, ImageError, reason_of
from captioner.folder.engine import Loader
from captioner.folder.items import Done, Found, Item, digest_of
from captioner.folder.records import MAX_RECORD_BYTES, parse_line
from captioner.folder.sources.source import LeftOut
from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions
from captioner.results import Caption

_AT_ONCE = 100
_EXPECTED = "convert reads the .jsonl file that captioner batch wrote"


@dataclass(frozen=True, slots=True)
class RecordedCaption(Caption):
    """A caption with the record that it was read from, which may be a person's."""

    record: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def to_dict(
        self, image: str | None = None, *, words: bool = True, alternatives: bool = True
    ) -> dict[str, Any]:
        wanted = {"words": words, "alternatives": alternatives, "image": False, "image_bytes": False}
        record = {key: value for key, value in self.record.items() if wanted.get(key, True)}
        return {"image": self.record["image"] if image is None else image, **record}


class RecordedSource:
    """The lines of a file, in order. Each has its content as its stamp."""

    keeps_order, sequential = True, False

    def __init__(self, path: Path) -> None:
        self.path, self.left_out = path, LeftOut()
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise DataError(f"{path}: {reason_of(error)}") from None
        self._turn = threading.Lock()

    def find(self) -> Iterator[Found]:
        offset = 0
        for number in itertools.count(1):
            line = self._read(offset)
            if not line:
                return
            if line.strip():
                yield self._found(line, offset, number)
            offset += len(line)

    def _found(self, line: bytes, offset: int, number: int) -> Found:
        try:
            record = parse_line(line)
        except ValueError:
            what = f"not a record of a caption; {_EXPECTED}"
            raise DataError(f"{self.path}, line {number}: {what}") from None
        locator = f"{offset} {len(line)}".encode()
        return Found(record["image"], locator, digest_of(line).hex())

    def first(self) -> dict[str, Any]:
        """The first record with a caption. Raises `DataError` if there is none."""
        for found in self.find():
            record = parse_line(self.read(found.locator, MAX_RECORD_BYTES)[0])
            if "caption" in record:
                return record
        raise DataError(f"{self.path}: there are no captions in this file")

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        line = self._read(int(locator.split()[0]))
        return line, digest_of(line).hex()

    def _read(self, offset: int) -> bytes:
        with self._turn:
            self._file.seek(offset)
            line = self._file.readline(MAX_RECORD_BYTES + 1)
        if len(line) > MAX_RECORD_BYTES:
            raise DataError(f"{self.path}: a line of more than {MAX_RECORD_BYTES} bytes; {_EXPECTED}")
        return line

    def close(self) -> None:
        self._file.close()


class RecordedEngine:
    """Gives back what was captioned."""

    model = "recorded"
    grid: tuple[int, int] | None = None
    calibration: Calibration | None = None
    settings: dict[str, bool | str]

    def __init__(self) -> None:
        self.settings = {"recorded": True}

    def run(
        self, items: Iterator[Item], loader: Loader, options: CaptionOptions, stop: threading.Event
    ) -> Iterator[Sequence[Done]]:
        while not stop.is_set() and (some := list(itertools.islice(items, _AT_ONCE))):
            loaded = [loader.load(item, _outcome) for item in some]
            yield [Done(one, one.payload) for one in loaded]


def _outcome(line: bytes) -> Caption | ImageError:
    record = parse_line(line)
    if "caption" not in record:
        error = ImageError(record["error"]["message"])
        error.code = record["error"]["code"]
        return error
    caption = Caption.from_dict(record)
    fields = {field.name: getattr(caption, field.name) for field in dataclasses.fields(Caption)}
    return RecordedCaption(**fields, record=record)
