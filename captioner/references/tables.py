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
    lines = io.StringIO(text, newline="")
    rows = csv.DictReader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
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
    split = columns.get("split")
    found = _Images(path)
    for row in rows:
        if None in row:
            raise DataError(
                f"{path}, line {rows.line_num}: more columns than the first line names; "
                "a caption that holds the separator must be in quotes"
            )
        if None in row.values():
            raise DataError(f"{path}, line {rows.line_num}: fewer columns than the first line names")
        if row[image] and row[caption].strip():
            found.add(row[image], row[caption], row[split] if split else "")
    return found.list()


def parse_lines(path: Path, text: str) -> list[CaptionedImage]:
    """Objects with `image` and `caption`, one on each line, as `captioner batch` and the gallery's
    corrections have them; optionally `split` and `status`. Records without a caption (failed images) and
    rejected ones are left out. Of several lines with a status for one image, the last counts. Raises
    `DataError`."""
    found = _Images(path)
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
    """The images of a folder that have a text file beside them, one caption on each line: `a.jpg.txt` for
    `a.jpg`, or `a.txt`, which belongs to the first of the images that could have it."""
    found, used = [], set()
    for name in list_images(folder):
        image = folder / name
        for beside in (image.with_name(image.name + ".txt"), image.with_suffix(".txt")):
            captions = read_text(beside).split("\n") if beside.is_file() and beside not in used else []
            captions = [caption.strip() for caption in captions if caption.strip()]
            if captions:
                used.add(beside)
                found.append(CaptionedImage(name, tuple(captions), ""))
                break
    if not found:
        raise DataError(f"{folder}: no image has a text file with a caption beside it")
    return found


class _Images:
    """Collects captions by image, in the order of the first one of each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._captions: dict[str, list[str]] = {}
        self._splits: dict[str, str] = {}

    def add(self, image: str, caption: str, split: str) -> None:
        """Raises `DataError` if the image was in another split before; no split says nothing."""
        self._captions.setdefault(image, []).append(" ".join(caption.split()))
        before, split = self._splits.get(image, ""), split.strip()
        if before and split and before != split:
            raise DataError(f"{self._path}: {image} is in two splits, {before} and {split}")
        self._splits[image] = split or before

    def forget(self, image: str) -> None:
        self._captions.pop(image, None)
        self._splits.pop(image, None)

    def list(self) -> list[CaptionedImage]:
        return [
            CaptionedImage(name, tuple(captions), self._splits[name])
            for name, captions in self._captions.items()
        ]
