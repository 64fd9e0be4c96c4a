"""Tables of captions as spreadsheets save them again."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

Row = dict[str, str]
_NUMBERS = ("log_prob", "confidence")


def _write(rows: list[Row], encoding: str, delimiter: str, *, end: str = "\r\n", cut: bool = False) -> bytes:
    """With `cut`, rows have no empty cells at their end."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerow(rows[0])
    for row in rows:
        cells = list(row.values())
        while cut and not cells[-1]:
            cells.pop()
        writer.writerow(cells)
    return text.getvalue().encode(encoding)


def _decimal_commas(rows: list[Row]) -> list[Row]:
    return [row | {name: row[name].replace(".", ",") for name in _NUMBERS if name in row} for row in rows]


def _reordered(rows: list[Row]) -> list[Row]:
    rows = [{"checked by": "", **dict(sorted(row.items())), "note": "wet; =1"} for row in rows]
    return [*rows, dict.fromkeys(rows[0], "")]


SAVED: dict[str, Callable[[list[Row]], bytes]] = {
    "Excel, CSV UTF-8": lambda rows: _write(rows, "utf-8-sig", ","),
    "Excel, CSV UTF-8, rows without their empty cells": lambda rows: _write(rows, "utf-8-sig", ",", cut=True),
    "Excel in Germany, CSV UTF-8": lambda rows: _write(_decimal_commas(rows), "utf-8-sig", ";"),
    "Excel, Unicode text": lambda rows: _write(rows, "utf-16", "\t"),
    "LibreOffice": lambda rows: _write(rows, "utf-8", ",", end="\n"),
    "LibreOffice, UTF-16, semicolons": lambda rows: _write(rows, "utf-16", ";", end="\n"),
    "Numbers": lambda rows: _write(rows, "utf-8", ";"),
    "columns added and sorted, an empty row": lambda rows: _write(_reordered(rows), "utf-8-sig", ","),
}
"""How each writes the rows of a table."""


def resave(path: Path, how: str, to: Path, **captions: str) -> Path:
    """Open a table, change the captions of the photos with these numbers (`_1="a dog"`), and save it."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for number, caption in captions.items():
        rows[int(number[1:])]["caption"] = caption
    to.write_bytes(SAVED[how](rows))
    return to
