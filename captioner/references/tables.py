"""Captions in CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from captioner.errors import REJECTED, DataError, clip
from captioner.images.suffixes import PICTURES
from captioner.printable import counted
from captioner.references.cells import unescape_path, unescape_text
from captioner.references.image import CaptionedImage
from captioner.references.json_text import json_lines
from captioner.surrogates import image_of, restore_surrogates

IMAGE_COLUMNS = (
    *("image", "filename", "file_name", "image_name", "file", "path"),
    *("filepath", "file_path", "image_path", "image_file", "image_filename", "img", "photo"),
)
CAPTION_COLUMNS = ("caption", "captions", "text", "comment", "description")
_OF_MODEL = ("model", "log_prob", "error")
"""Fields of the records that `captioner batch` writes."""
_NEEDED = {"image", "caption", "split"}
"""Columns that every row must reach: a caption with a line break but no quotes would be cut."""
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(rf'"?sep=([{_DELIMITERS}])"?')
_NUMBERED = re.compile(r"(caption|comment|text|sentence)[ _.-]?\d+")
"""A column for one of several captions."""
_LOG = logging.getLogger(__name__)


def is_csv(path: Path, text: str) -> bool:
    """Whether a file is named so, or its first line names the columns of images and captions."""
    if path.suffix.lower() in (".csv", ".tsv"):
        return True
    delimiter, table, _ = _divided(text)
    names = {name.strip(' "\r').lower() for name in table.partition("\n")[0].split(delimiter)}
    return not names.isdisjoint(IMAGE_COLUMNS) and not names.isdisjoint(CAPTION_COLUMNS)


def parse_csv(path: Path, text: str) -> list[CaptionedImage]:
    """Columns `image` and `caption`, optionally `split`, between commas, semicolons, tabs or bars; one row
    for each caption. Raises `DataError`, also for a row with more columns, which a comma in a caption without
    quotes makes."""
    found = _Images(path)
    for _, row in csv_rows(path, text):
        found.add(row["image"], row["caption"], row.get("split", ""), listed=True)
    return found.list()


def csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The number of each line that names an image, and its columns, with `image` and `caption` among their
    names, as they were before `CsvOutput` wrote them. Raises `DataError`."""
    # A line break in a quoted caption must reach the reader.
    delimiter, table, above = _divided(text)
    lines = io.StringIO(table, newline="")
    rows = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
    done, nameless = 1 + above, 0
    try:
        names = _column_names(path, next(rows, []))
        image = names.index("image")
        for row in rows:
            done = rows.line_num + above
            if any(map(str.strip, row)):
                place = f"{path}, line {done}"
                if len(row) > len(names):
                    raise DataError(
                        f"{place}: more columns than the first line names; "
                        "a caption that holds the separator must be in quotes"
                    )
                # Excel leaves out empty cells at the end of lines.
                if not _NEEDED.isdisjoint(names[len(row) :]):
                    raise DataError(f"{place}: fewer columns than the first line names")
                if row[image].strip():
                    yield done, _original(zip_longest(names, map(str.strip, row), fillvalue=""))
                else:
                    nameless += 1
    except csv.Error as error:
        raise DataError(f"{path}, after line {done}: not CSV ({error})") from None
    if nameless:
        _LOG.warning("%s: %s without an image", path, counted(nameless, "row"))


def _original(cells: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A row as it was before it was made safe for spreadsheets."""
    return {
        name: restore_surrogates(unescape_path(cell)) if name == "image" else unescape_text(cell)
        for name, cell in cells
    }


def _divided(text: str) -> tuple[str, str, int]:
    """The separator of columns, the table, and how many lines are above it: some spreadsheets write a line
    "sep=;"."""
    head, _, below = text.partition("\n")
    if told := _SEPARATOR.fullmatch(head):
        return told[1], below, 1
    # Spreadsheets write semicolons where the comma is the decimal point.
    return max(_DELIMITERS, key=head.count), text, 0


def _column_names(path: Path, head: Sequence[str]) -> list[str]:
    names = [name.strip().lower() for name in head]
    for name in (*IMAGE_COLUMNS, *CAPTION_COLUMNS, "split"):
        if names.count(name) > 1:
            raise DataError(f"{path}: the first line names the column {name} more than once")
    for wanted, known in (("image", IMAGE_COLUMNS), ("caption", CAPTION_COLUMNS)):
        if names_of_it := [name for name in known if name in names]:
            names[names.index(names_of_it[0])] = wanted
        else:
            there = ", ".join(filter(None, names)) or "nothing"
            several = "; give each caption a row" if any(map(_NUMBERED.fullmatch, names)) else ""
            raise DataError(
                f"{path}: no column {wanted}: the first line names {clip(there)}; known are"
                f" {', '.join(known)}{several}"
            )
    return names


def parse_lines(path: Path, text: str) -> list[CaptionedImage]:
    """Objects with `image` and `caption`, one on each line, as `captioner batch`, the gallery's corrections
    and Hugging Face's metadata have them; optionally `split` and `status`. Raises `DataError`."""
    return parse_records(path, json_lines(text, path))


def parse_records(path: Path, records: Iterable[tuple[str, Any]]) -> list[CaptionedImage]:
    """As `parse_lines`, from the place of each object and itself; `caption` may be a list. Those without a
    caption (failed images) and rejected ones are left out. Of several with a status for one image, the last
    counts. Raises `DataError`."""
    found = _Images(path)
    unknown, is_known = "", False
    for place, record in records:
        if not isinstance(record, dict):
            raise DataError(f"{place}: not an object")
        is_known = is_known or not record.keys().isdisjoint((*CAPTION_COLUMNS, "error"))
        unknown = unknown or f"{place}: no field with a caption among {clip(', '.join(record))}"
        image, captions = image_of({"image": first_of(record, IMAGE_COLUMNS), **record}), _captions(record)
        if not isinstance(image, str) or captions is None:
            by_number = "; COCO results have only numbers for images" if "image_id" in record else ""
            raise DataError(f"{place}: no object with the strings image and caption{by_number}")
        if "status" in record:
            found.forget(image)
        if record.get("status") != REJECTED:
            for caption in captions:
                found.add(image, caption, str(record.get("split") or ""), listed=is_listed(record))
    if unknown and not is_known:
        raise DataError(f"{unknown}; known are {', '.join(CAPTION_COLUMNS)}")
    return found.list()


def is_listed(record: Mapping[str, Any]) -> bool:
    """Whether a model wrote a record, and nobody has decided about it (`CaptionedImage.listed`)."""
    return "status" not in record and not record.keys().isdisjoint(_OF_MODEL)


def plain_records(path: Path, document: Any) -> list[tuple[str, Any]] | None:
    """The records of a list, or of a table of captions by image, for `parse_records`; None for others."""
    if isinstance(document, list):
        return [(f"{path}, entry {number}", entry) for number, entry in enumerate(document, 1)]
    if not isinstance(document, dict) or not all(map(_is_picture, document)):
        return None
    return [(f"{path}, {name}", {"image": name, "caption": caption}) for name, caption in document.items()]


def _is_picture(name: str) -> bool:
    return name.rpartition(".")[2].lower() in PICTURES


def _captions(record: Mapping[str, Any]) -> list[str] | None:
    """None for what is no caption; an empty list where there is none."""
    given = first_of(record, CAPTION_COLUMNS)
    captions = given if isinstance(given, list) else [] if given is None else [given]
    return captions if all(isinstance(caption, str) for caption in captions) else None


def first_of(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """The first of these fields that a record has, else None."""
    return next((record[name] for name in names if name in record), None)


class _Images:
    """Collects captions by image, in the order of the first one of each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._captions: dict[str, list[str]] = {}
        self._splits: dict[str, str] = {}
        self._unlisted: set[str] = set()

    def add(self, image: str, caption: str, split: str, *, listed: bool) -> None:
        """Blank captions are none. Raises `DataError` if the image was in another split before; no split says
        nothing."""
        captions = self._captions.setdefault(image, [])
        if caption.strip():
            captions.append(" ".join(caption.split()))
        before, split = self._splits.get(image, ""), split.strip()
        if before and split and before != split:
            raise DataError(f"{self._path}: {image} is in two splits, {before} and {split}")
        self._splits[image] = split or before
        if not listed:
            self._unlisted.add(image)

    def forget(self, image: str) -> None:
        self._captions.pop(image, None)
        self._splits.pop(image, None)

    def list(self) -> list[CaptionedImage]:
        return [
            CaptionedImage(name, tuple(captions), self._splits[name], listed=name not in self._unlisted)
            for name, captions in self._captions.items()
        ]
