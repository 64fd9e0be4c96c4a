"""What an output is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def unchanged(record: Record) -> Record:
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What is written beside captions, and how captions are shaped."""

    attention: bool = False
    alternatives: bool = False
    grid: tuple[int, int] | None = None
    """Rows and columns of the maps, where they are asked for."""
    shape: Callable[[Record], Record] = unchanged
    """From the record as the model gave it to the one to be written."""
    root: Path | None = None
    """The folder that names are relative to, where there is one."""
