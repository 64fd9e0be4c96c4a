"""Reads text files of bounded size: a stranger may have put them there."""

from __future__ import annotations

import os
from pathlib import Path

from captioner.errors import DataError

MAX_BYTES = 2**30
"""The largest file of captions. Those of COCO have a tenth of this."""
MAX_SIDECAR_BYTES = 2**20
"""The largest text file that belongs to one photo."""


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """A file in UTF-8 of at most so many bytes. Raises `DataError`."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise DataError(f"{path} has {size} bytes, the limit is {most}")
            content = file.read(most + 1) if not size else file.read(size)  # pipes and devices tell no size
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    if len(content) > most:
        raise DataError(f"{path} has more than {most} bytes, the limit")
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file in UTF-8; save it as one") from None
