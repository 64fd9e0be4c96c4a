"""Captions in Parquet, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from captioner.errors import DataError, RuntimeMissingError, how_to_install, reason_of
from captioner.surrogates import restore_surrogates

_COLUMNS = ["image", "caption", "error_code"]
_ROWS = 1000
"""Rows held in memory at a time."""


def import_pyarrow() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet. Raises `RuntimeMissingError`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise RuntimeMissingError(f"Parquet needs pyarrow: {how_to_install('parquet')}") from None
    return pyarrow, pyarrow.parquet


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows that `captioner batch` wrote: `image`, `caption` and `error_code`, as far as these columns are
    there. Raises `DataError`, and `RuntimeMissingError` without pyarrow."""
    pyarrow, parquet = import_pyarrow()
    try:
        with path.open("rb") as file:
            for rows in parquet.ParquetFile(file).iter_batches(_ROWS, columns=_COLUMNS):
                for row in rows.to_pylist():
                    if isinstance(row.get("image"), str):
                        row["image"] = restore_surrogates(row["image"])
                    yield row
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: {reason_of(error, 'not Parquet, or damaged')}") from None
