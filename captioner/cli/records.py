"""The captions of an earlier run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioner.errors import DataError
from captioner.surrogates import image_of

_LINES_TRIED = 100
_NOT_A_RECORD = {"code": "invalid_data", "message": "not a record of a caption"}


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


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    from captioner.folder.state_file import MAX_RECORD_BYTES

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
        raise DataError(f"{path}: {error.strerror or error}") from error


def _read_line(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and "image" in record and ("caption" in record or "error" in record):
        return {**record, "image": image_of(record)}
    return {"image": place, "error": _NOT_A_RECORD}
