"""Records: the JSON of one image in a state and in `captions.jsonl`, as `Caption.to_dict` and `error_to_dict`
make it. Others may have changed a file of them."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from captioner.errors import REJECTED, DataError, clip, reason_of
from captioner.folder.transform import Record
from captioner.references.tables import csv_rows
from captioner.results import Caption
from captioner.surrogates import image_of

MAX_RECORD_BYTES = 2**23
"""Twice the largest record: 64 words with maps of 64 x 64."""
BLANK = b" \t\r\n\0"
"""What may be around a record in its line; zeros are what a power failure leaves."""
_NUMBERS = ("log_prob", "confidence")
_TEXTS = ("caption", "model")
_LINES_TRIED = 100
_NOT_A_RECORD = {"code": "invalid_data", "message": "not a record of a caption"}


def parse_line(line: bytes) -> dict[str, Any]:
    """A record with the name of its image as the file system has it. Raises `ValueError` for others."""
    with _of_right_types():
        text = line.strip(BLANK).decode("utf-8-sig")
        record = json.loads(text, parse_float=_finite, parse_constant=_finite)
        record["image"] = image_of(record)
        _check(record)
        return record


def read_record(line: str, name: str) -> dict[str, Any]:
    """The record of the image `name`. Raises `ValueError` for anything else."""
    with _of_right_types():
        record = json.loads(line)
        if record.get("image") != name:
            raise ValueError("not a record of this image")
        _check(record)
        return record


@contextmanager
def _of_right_types() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError("not a record") from error


def _finite(text: str) -> float:
    """JSON has neither NaN nor Infinity, but Python reads them."""
    if math.isfinite(number := float(text)):
        return number
    raise ValueError("not a finite number")


def _check(record: dict[str, Any]) -> None:
    name = record["image"]
    os.fsencode(name)
    if not _is_complete(record) or PurePath(os.path.normpath(name)).name in ("", ".."):
        raise ValueError("not a record")
    if "words" in record or "alternatives" in record:
        others = Caption.from_dict(record).alternatives
        if not all(isinstance(other.text, str) for other in others):
            raise ValueError("an alternative is no text")


def _is_complete(record: Record) -> bool:
    """Whether it has a caption or an error, and what it has is of the right type."""
    error, keywords = record.get("error", {"code": "", "message": ""}), record.get("keywords", [])
    return (
        ("caption" in record or "error" in record)
        and all(isinstance(record.get(name, ""), str) for name in _TEXTS)
        and all(isinstance(float(record.get(name, 0.0)), float) for name in _NUMBERS)
        and all(isinstance(error[name], str) for name in ("code", "message"))
        and isinstance(keywords, list)
        and all(isinstance(keyword, str) for keyword in keywords)
    )


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSONL file. An invalid line, such as the last one of a killed run, becomes a failed
    record. Raises `DataError` at once if the file starts with many invalid lines or has no others."""
    records = _read_lines(path)
    first: list[dict[str, Any]] = []
    for record in records:
        first.append(record)
        if record.get("error") is not _NOT_A_RECORD:
            return itertools.chain(first, records)
        if len(first) == _LINES_TRIED:
            break
    raise DataError(
        f"{path}: there are no captions in this file; they are in the .jsonl file that captioner batch wrote"
    )


def table_records(path: Path, text: str) -> Iterator[dict[str, Any]]:
    """The records in the text of a CSV file that `captioner batch` wrote, in which a person may have changed
    captions and removed columns. A photo without a caption or an error is one whose caption was rejected.
    Raises `DataError`."""
    for place, row in table_rows(path, text):
        try:
            record = _of_row(row)
            with _of_right_types():
                _check(record)
        except ValueError as error:
            raise DataError(f"{place}: {error}") from None
        yield record


def table_rows(path: Path, text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The place and the columns of each row in the text of a CSV file with one row for each photo. Raises
    `DataError`."""
    seen = set()
    for number, row in csv_rows(path, text):
        place = f"{path}, line {number}"
        if row["image"] in seen:
            raise DataError(f"{place}: a second row of {row['image']}")
        seen.add(row["image"])
        yield place, row


def _of_row(row: Mapping[str, str]) -> dict[str, Any]:
    """Raises `ValueError` for a number that is none."""
    if not row["caption"]:
        code, message = row.get("error_code") or REJECTED, row.get("error_message", "")
        return {"image": row["image"], "error": {"code": code, "message": message}}
    record: dict[str, Any] = {"image": row["image"], "caption": row["caption"]}
    record |= {name: _number(name, row[name]) for name in _NUMBERS if row.get(name)}
    if row.get("model"):
        record["model"] = row["model"]
    if "keywords" in row:
        record["keywords"] = [word for part in row["keywords"].split(";") if (word := part.strip())]
    return record


def _number(name: str, text: str) -> float:
    """A number, with the decimal point of any country."""
    try:
        return _finite(text.replace(",", "."))
    except ValueError:
        raise ValueError(f"{name} is not a number: {clip(text)}; the column may be left out") from None


def keywords_of_record(record: Record) -> Sequence[str]:
    """What the model found in the photo, perhaps nothing, whatever the caption names. For a caption that a
    person wrote, the things that it names."""
    from captioner.words.keywords import keywords_of

    of_machine: Sequence[str] = record.get("keywords", ())
    return of_machine if of_machine or "log_prob" in record else keywords_of(record["caption"])


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            lines = iter(lambda: file.readline(MAX_RECORD_BYTES + 1), b"")
            for number, line in enumerate(lines, 1):
                if len(line) > MAX_RECORD_BYTES:
                    raise DataError(f"{path}, line {number}: more than {MAX_RECORD_BYTES} bytes")
                if line.strip():
                    text = line.decode("utf-8-sig", "replace")
                    yield _read_line(text, f"line {number} of {path.name}")
    except OSError as error:
        raise DataError(f"{path}: {reason_of(error)}") from error


def _read_line(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and "image" in record and ("caption" in record or "error" in record):
        return {**record, "image": image_of(record)}
    return {"image": place, "error": _NOT_A_RECORD}
