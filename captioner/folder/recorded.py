"""Captions of an earlier run, from its JSON Lines or CSV, for a folder run that writes them in other
formats."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from captioner.errors import DataError, ImageError, reason_of
from captioner.folder.engine import Loader
from captioner.folder.items import Done, Item, ListedImage, digest_of
from captioner.folder.records import BLANK, MAX_RECORD_BYTES, parse_line, table_records
from captioner.folder.sources.source import LeftOut
from captioner.model.calibration import Calibration
from captioner.options import CaptionOptions
from captioner.readable_json import dump_record
from captioner.references.bounded import read_text
from captioner.references.files import on_disk
from captioner.references.tables import is_csv
from captioner.results import Caption

_AT_ONCE = 100
_HEAD = 2**12
_EXPECTED = (
    "convert reads the .jsonl file that captioner batch wrote, or its CSV (in Excel: save as CSV UTF-8)"
)
_LOG = logging.getLogger(__name__)


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
    """The lines of a file, in order, those of CSV as JSON. Each has its content as its stamp."""

    keeps_order, sequential = True, False

    def __init__(self, path: Path, root: Path | None) -> None:
        """Photos in the folder `root` are found if the accents in their names are composed otherwise."""
        self.path, self.left_out, self._root = path, LeftOut(), root
        self._lost = set[int]()
        """The numbers of lines with zeros."""
        try:
            self._file: IO[bytes] = path.open("rb")
        except IsADirectoryError:
            raise DataError(f"{path}: a folder; {_EXPECTED}") from None
        except OSError as error:
            raise DataError(f"{path}: {reason_of(error)}") from None
        if not _is_json(self._file) and is_csv(path, text := read_text(path, wanted=_EXPECTED)):
            self._file.close()
            self._file = BytesIO(b"".join(map(_to_line, table_records(path, text))))
        self._turn = threading.Lock()

    def find(self) -> Iterator[ListedImage]:
        offset = 0
        for number in itertools.count(1):
            line = self._read(offset)
            if not line:
                return
            found = self._found(line, offset, number) if line.strip(BLANK) else None
            if b"\0" in line and number not in self._lost:
                self._lost.add(number)
                lost = "zeros, as after a power failure: what was there is lost"
                _LOG.warning("%s, line %d: %s", self.path, number, lost)
            if found:
                yield found
            offset += len(line)

    def _found(self, line: bytes, offset: int, number: int) -> ListedImage:
        try:
            record = parse_line(line)
        except ValueError:
            what = f"not a record of a caption; {_EXPECTED}"
            raise DataError(f"{self.path}, line {number}: {what}") from None
        locator = f"{offset} {len(line)}".encode()
        name = record["image"]
        name = name if self._root is None else on_disk(name, self._root)
        return ListedImage(name, locator, digest_of(line).hex())

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


def _is_json(file: IO[bytes]) -> bool:
    """Whether a file begins as JSON Lines do; text of spreadsheets may be UTF-16."""
    return file.read(_HEAD).removeprefix(BOM_UTF8).lstrip().startswith(b"{")


def _to_line(record: Mapping[str, Any]) -> bytes:
    return f"{dump_record(record)}\n".encode()


class RecordedEngine:
    """Gives back what was captioned."""

    model = "recorded"
    grid: tuple[int, int] | None = None
    calibration: Calibration | None = None
    settings: Mapping[str, bool | str] = {"recorded": True}

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
