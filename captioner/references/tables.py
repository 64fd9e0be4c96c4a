"""Captions in CSV, JSON lines, and text files beside their photos."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from captioner.errors import DataError
from captioner.references.bounded import MAX_SIDECAR_BYTES, read_text
from captioner.references.image import CaptionedImage
from captioner.references.json_text import json_lines
from captioner.references.listing import list_images
from captioner.results import REJECTED
from captioner.surrogates import image_of

IMAGE_COLUMNS = ("image", "filename", "file_name", "image_name", "file", "path")
CAPTION_COLUMNS = ("caption", "text", "comment")
SIDECAR_SUFFIXES = (".txt", ".caption")
_DELIMITERS = ",;\t|"


class NoCaptionsError(DataError):
    """A folder has no captions."""


def is_csv(text: str) -> bool:
    """Whether the first line of a text names the columns of images and captions."""
    head = text.partition("\n")[0]
    names = {name.strip(' "\r').lower() for name in head.split(_delimiter(head))}
    return not names.isdisjoint(IMAGE_COLUMNS) and not names.isdisjoint(CAPTION_COLUMNS)


def parse_csv(path: Path, text: str) -> list[CaptionedImage]:
    """Columns `image` and `caption`, optionally `split`, between commas, semicolons, tabs or bars; one row
    for each caption. Raises `DataError`, also for a row with more columns, which a comma in a caption without
    quotes makes."""
    found = _Images(path)
    for _, row in csv_rows(path, text):
        if row["image"] and row["caption"].strip():
            found.add(row["image"], row["caption"], row.get("split", ""))
    return found.list()


def csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The number of each line and its columns, with `image` and `caption` among their names. Raises
    `DataError`."""
    # A line break in a quoted caption must reach the reader.
    lines = io.StringIO(text, newline="")
    delimiter = _delimiter(text.partition("\n")[0])
    rows = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
    done = 1
    try:
        names = _column_names(path, next(rows, []))
        for row in rows:
            done = rows.line_num
            if row:
                place = f"{path}, line {done}"
                if len(row) > len(names):
                    raise DataError(
                        f"{place}: more columns than the first line names; "
                        "a caption that holds the separator must be in quotes"
                    )
                if len(row) < len(names):
                    raise DataError(f"{place}: fewer columns than the first line names")
                yield done, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}, after line {done}: not CSV ({error})") from None


def _delimiter(head: str) -> str:
    # Spreadsheets write semicolons where the comma is the decimal point.
    return max(_DELIMITERS, key=head.count)


def _column_names(path: Path, head: Sequence[str]) -> list[str]:
    names = [name.strip().lower() for name in head]
    for name in (*IMAGE_COLUMNS, *CAPTION_COLUMNS, "split"):
        if names.count(name) > 1:
            raise DataError(f"{path}: the first line names the column {name} more than once")
    for wanted, known in (("image", IMAGE_COLUMNS), ("caption", CAPTION_COLUMNS)):
        if names_of_it := [name for name in known if name in names]:
            names[names.index(names_of_it[0])] = wanted
        else:
            raise DataError(f"{path}: the first line must name the columns image and caption")
    return names


def parse_lines(path: Path, text: str) -> list[CaptionedImage]:
    """Objects with `image` and `caption`, one on each line, as `captioner batch`, the gallery's corrections
    and Hugging Face's metadata have them; optionally `split` and `status`. Records without a caption (failed
    images) and rejected ones are left out. Of several lines with a status for one image, the last counts.
    Raises `DataError`."""
    found = _Images(path)
    for place, record in json_lines(text, path):
        if not isinstance(record, dict):
            raise DataError(f"{place}: not an object")
        image = image_of({"image": _first(record, IMAGE_COLUMNS), **record})
        caption = _first(record, CAPTION_COLUMNS)
        if not isinstance(image, str) or not isinstance(caption, str | None):
            raise DataError(f"{place}: no object with the strings image and caption")
        if "status" in record:
            found.forget(image)
        if caption and caption.strip() and record.get("status") != REJECTED:
            found.add(image, caption, str(record.get("split") or ""))
    return found.list()


def _first(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((record[name] for name in names if name in record), None)


def read_sidecars(folder: Path) -> list[CaptionedImage]:
    """The images of a folder that have a text file beside them, one caption on each line: `a.jpg.txt` for
    `a.jpg`, or `a.txt`, which belongs to the first of the images that could have it; likewise `.caption`."""
    found, used = [], set()
    for name in list_images(folder):
        image = folder / name
        for beside in (
            place
            for suffix in SIDECAR_SUFFIXES
            for place in (image.with_name(image.name + suffix), image.with_suffix(suffix))
        ):
            is_new = beside.is_file() and beside not in used
            lines = read_text(beside, MAX_SIDECAR_BYTES).split("\n") if is_new else []
            captions = [line.strip() for line in lines if line.strip()]
            if captions:
                used.add(beside)
                found.append(CaptionedImage(name, tuple(captions), ""))
                break
    if not found:
        raise NoCaptionsError(f"{folder}: no image has a text file with a caption beside it")
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
