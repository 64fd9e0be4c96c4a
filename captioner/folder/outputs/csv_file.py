"""CSV in UTF-8 (RFC 4180). No cell is one that spreadsheets take for a formula, also where they divide lines
at semicolons or tabs, as Excel does in many countries."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO, Any

from captioner.folder.outputs.options import Record
from captioner.folder.outputs.table import COLUMNS, Table, flatten
from captioner.folder.records import keywords_of_record

_FORMULA = "[=+\\-@\uff1d\uff0b\uff0d\uff20]"
"""What a cell begins with that a spreadsheet computes, in both widths."""
_FIRST = re.compile(rf"(?={_FORMULA}|[\t\r\n])")
_ANY = re.compile(rf"^{_FIRST.pattern}|(?<=[;\t\r\n])(?={_FORMULA})")
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
    """A text that is no formula. A path is written with "./" before it, and quotes keep the rest of the first
    column together. Other columns have quotes only where lines are divided at commas: there is an apostrophe
    before all that may begin a cell."""
    if value is None:
        return ""
    text = str(value)
    if isinstance(value, str):
        text = f"./{text}" if column == "image" and _FIRST.match(text) else text
        text = text if column == "image" else _ANY.sub("'", text)
    return '"{}"'.format(text.replace('"', '""')) if _QUOTED.search(text) else text
