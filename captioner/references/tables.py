"""Captions in CSV, JSON lines, and text files beside their photos."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from captioner.errors import DataError
from captioner.references.image import CaptionedImage
from captioner.references.json_text import parse_json
from captioner.references.listing import list_images

IMAGE_COLUMNS = ("image", "filename", "file_name", "file", "path")
CAPTION_COLUMNS = ("caption", "text")
REJECTED = "rejected"


def parse_csv(path: Path, text: str) -> list[CaptionedImage]:
    """Columns `image` and `caption`, optionally `split`, between commas, semicolons or tabs; one row for each
    caption. Raises `DataError`, also for a row with more columns, which a comma in a caption without quotes
    makes."""
    # Spreadsheets write semicolons where the comma is the decimal point.
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    # A line break in a quoted caption must reach the reader.
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        return _read_rows(path, rows)
    except csv.Error as error:
        raise DataError(f"{path}, after line {rows.line_num}: not CSV ({error})") from None


def _read_rows(path: Path, rows: csv.DictReader[str]) -> list[CaptionedImage]:
    names = [name.strip().lower() for name in rows.fieldnames or ()]
    for name in (*IMAGE_COLUMNS, *CAPTION_COLUMNS, "split"):
        if names.count(name) > 1:
            raise DataError(f"{path}: the first line names the column {name} more than once")
    columns = dict(zip(names, rows.fieldnames or (), strict=True))
    image = next((columns[name] for name in IMAGE_COLUMNS if name in columns), None)
    caption = next((columns[name] for name in CAPTION_COLUMNS if name in columns), None)
    if image is None or caption is None:
        raise DataError(f"{path}: the first line must name the columns image and caption")
    found = _Images()
    for row in rows:
        if None in row:
            raise DataError(
                f"{path}, line {rows.line_num}: more columns than the first line names; "
                "a caption that holds the separator must be in quotes"
            )
        if None in row.values():
            raise DataError(f"{path}, line {rows.line_num}: fewer columns than the first line names")
        if row[image] and row[caption].strip():
            found.add(row[image], row[caption], row.get(columns.get("split", "")) or "")
    return found.list()


def parse_lines(path: Path, text: str) -> list[CaptionedImage]:
    """Objects with `image` and `caption`, one on each line, as `captioner batch` and the gallery's
    corrections have them; optionally `split` and `status`. Records without a caption (failed images) and
    rejected ones are left out. Of several lines with a status for one image, the last counts. Raises
    `DataError`."""
    found = _Images()
    for number, record in _records(path, text):
        image, caption = record.get("image"), record.get("caption")
        if not isinstance(image, str) or not isinstance(caption, str | None):
            raise DataError(f"{path}, line {number}: no object with the strings image and caption")
        if "status" in record:
            found.forget(image)
        if caption and caption.strip() and record.get("status") != REJECTED:
            found.add(image, caption, str(record.get("split") or ""))
    return found.list()


def _records(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        record = parse_json(line, f"{path}, line {number}")
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number}: not an object")
        yield number, record


def read_sidecars(folder: Path, read_text: Callable[[Path], str]) -> list[CaptionedImage]:
    """The images of a folder that have a text file beside them (`a.txt` or `a.jpg.txt` for `a.jpg`), one
    caption on each line."""
    found = []
    for name in list_images(folder):
        image = folder / name
        for beside in (image.with_suffix(".txt"), image.with_name(image.name + ".txt")):
            captions = read_text(beside).split("\n") if beside.is_file() else []
            captions = [caption.strip() for caption in captions if caption.strip()]
            if captions:
                found.append(CaptionedImage(name, tuple(captions), ""))
                break
    if not found:
        raise DataError(f"{folder}: no image has a text file with a caption beside it")
    return found


class _Images:
    """Collects captions by image, in the order of the first one of each."""

    def __init__(self) -> None:
        self._captions: dict[str, list[str]] = {}
        self._splits: dict[str, str] = {}

    def add(self, image: str, caption: str, split: str) -> None:
        self._captions.setdefault(image, []).append(" ".join(caption.split()))
        self._splits[image] = split.strip()

    def forget(self, image: str) -> None:
        self._captions.pop(image, None)

    def list(self) -> list[CaptionedImage]:
        return [
            CaptionedImage(name, tuple(captions), self._splits[name])
            for name, captions in self._captions.items()
        ]
