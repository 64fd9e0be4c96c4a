"""Parquet, through pyarrow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.table import Table, flatten
from captioner.folder.transform import Record
from captioner.references.parquet import import_pyarrow

ROWS_A_GROUP = 1000
"""Rows held in memory at a time."""


class ParquetOutput(Table):
    """One row per image, null for unknown values. With maps, a row has a list of words, each with its map
    as a list in row-major order. If all maps have the same size, the lists are of fixed size and the
    schema metadata hold `rows` and `columns`; otherwise these are columns."""

    def __init__(self, path: Path, options: OutputOptions) -> None:
        super().__init__(path, options)
        import_pyarrow()  # better missed now than after hours

    def write(self, file: IO[bytes], records: Iterator[Record]) -> None:
        write_parquet(file, records, self._options)


def write_parquet(file: IO[bytes], records: Iterator[Record], options: OutputOptions) -> None:
    """Write records to a file as `ParquetOutput` describes."""
    pyarrow, parquet = import_pyarrow()
    schema = make_schema(options)
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while chunk := [to_row(record) for record in itertools.islice(records, ROWS_A_GROUP)]:
            writer.write_table(pyarrow.Table.from_pylist(chunk, schema))


def make_schema(options: OutputOptions) -> Any:
    """The columns of the table, as a `pyarrow.Schema`."""
    arrow, _ = import_pyarrow()
    numbers = {"log_prob", "confidence"}
    fields = [
        arrow.field(name, arrow.float64() if name in numbers else arrow.string(), nullable=name != "image")
        for name in flatten({"image": ""})
    ]
    metadata = {}
    if options.attention:
        if options.grid is None:
            cells = arrow.list_(arrow.float32())
            fields += [arrow.field(name, arrow.int32()) for name in ("rows", "columns")]
        else:
            rows, columns = options.grid
            metadata = {"rows": str(rows), "columns": str(columns)}
            cells = arrow.list_(arrow.float32(), rows * columns)
        word = [
            ("text", arrow.string()),
            ("log_prob", arrow.float64()),
            ("attention", cells),
            ("sentinel", arrow.float32()),
        ]
        fields.append(arrow.field("words", arrow.list_(arrow.struct(word))))
    if options.alternatives:
        other = arrow.struct([("caption", arrow.string()), ("log_prob", arrow.float64())])
        fields.append(arrow.field("alternatives", arrow.list_(other)))
    return arrow.schema(fields, metadata)


def to_row(record: Record) -> dict[str, Any]:
    """A record as a row."""
    row = flatten(record)
    if words := record.get("words"):
        row["rows"], row["columns"] = len(words[0]["attention"]), len(words[0]["attention"][0])
    row["words"] = None if "words" not in record else list(map(_flatten_map, record["words"]))
    row["alternatives"] = record.get("alternatives")
    return row


def _flatten_map(word: Record) -> dict[str, Any]:
    maps: Sequence[Sequence[float]] = word["attention"]
    return {**word, "attention": [value for row in maps for value in row]}
