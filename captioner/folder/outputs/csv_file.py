"""CSV in UTF-8 (RFC 4180). No cell is one that spreadsheets take for a formula, also where they divide lines
at semicolons or tabs, as Excel does in many countries."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO, Any

from captioner.folder.outputs.table import COLUMNS, Table, flatten
from captioner.folder.records import keywords_of_record
from captioner.folder.transform import Record
from captioner.references.cells import escape_path, escape_text

_QUOTED = re.compile(r'[",;\t\r\n]')


class CsvOutput(Table):
    """One row per image; unknown values are empty. Keywords are divided by semicolons."""

    def write(self, file: IO[bytes], records: Iterator[Record]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8-sig" if self._options.excel else "utf-8", newline="")
        columns = (*COLUMNS, "keywords") if self._options.keywords else COLUMNS
        text.write(f"{','.join(columns)}\r\n")
        for record in records:
            row = flatten(record)
            if self._options.keywords and "caption" in record:
                row["keywords"] = "; ".join(keywords_of_record(record))
            cells = (_cell(row.get(name), name) for name in columns)
            text.write(f"{','.join(cells)}\r\n")
        text.flush()
        text.detach()


def _cell(value: Any, column: str) -> str:
    """A text that is no formula. Quotes keep a path in the first column together. Other columns have quotes
    only where lines are divided at commas, so no part of them may be a formula either."""
    if value is None:
        return ""
    text = str(value)
    if isinstance(value, str):
        text = escape_path(text) if column == "image" else escape_text(text)
    return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text
