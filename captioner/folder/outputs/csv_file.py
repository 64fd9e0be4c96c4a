"""CSV in UTF-8 (RFC 4180). No cell is one that spreadsheets take for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import IO, Any

from captioner.folder.outputs.options import Record
from captioner.folder.outputs.table import COLUMNS, Table, flatten

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a cell begins with that a spreadsheet computes, in both widths."""


class CsvOutput(Table):
    """One row per image; unknown values are empty."""

    name = "csv"

    def write(self, file: IO[bytes], records: Iterator[Record]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8-sig" if self._options.excel else "utf-8", newline="")
        rows = csv.DictWriter(text, COLUMNS)
        rows.writeheader()
        for record in records:
            rows.writerow({name: _harmless(value, name) for name, value in flatten(record).items()})
        text.flush()
        text.detach()


def _harmless(value: Any, column: str) -> Any:
    """A text that is no formula: a path is written with "./" before it, any other text with an apostrophe."""
    if not (isinstance(value, str) and value.startswith(_FORMULA)):
        return value
    return f"./{value}" if column == "image" else f"'{value}"
