"""What turns the record of an image, as the model gave it, into the one to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Record = Mapping[str, Any]
"""The JSON of one image (`captioner.folder.records`), which is not changed in place."""
Transform = Callable[[Record], Record]


def unchanged(record: Record) -> Record:
    return record
