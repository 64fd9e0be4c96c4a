"""CSV in UTF-8 (RFC 4180). Names that are not UTF-8 are written byte for byte."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import IO

from captioner.folder.outputs.options import Record
from captioner.folder.outputs.table import COLUMNS, Table, flatten


class CsvOutput(Table):
    """One row per image; unknown values are empty."""

    name = "csv"

    def write(self, file: IO[bytes], records: Iterator[Record]) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
        rows = csv.DictWriter(text, COLUMNS)
        rows.writeheader()
        rows.writerows(map(flatten, records))
        text.flush()
        text.detach()
