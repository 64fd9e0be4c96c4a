"""Reads text files of bounded size: a stranger may have put them there."""

from __future__ import annotations

import logging
import os
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path

from captioner.errors import DataError, reason_of

TEXT_FORMATS = (
    "captions are read from CSV (in Excel: save as CSV UTF-8), JSON lines, JSON of COCO or Karpathy, Flickr8k"
    " tokens, or a folder of photos with text files"
)
MAX_BYTES = 2**30
"""The largest file of captions. Those of COCO have a tenth of this."""
MAX_SIDECAR_BYTES = 2**20
"""The largest text file that belongs to one photo."""
_LOG = logging.getLogger(__name__)


def read_text(path: Path, most: int = MAX_BYTES, *, wanted: str = TEXT_FORMATS) -> str:
    """A file in UTF-8, or in UTF-16 with a byte order mark, of at most so many bytes, without the zeros that
    a power failure leaves at its end. Raises `DataError`, which tells what is `wanted` of a folder and of
    what is no text."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise DataError(f"{path} has {size} bytes, the limit is {most}")
            content = file.read(most + 1) if not size else file.read(size)  # pipes and devices tell no size
    except IsADirectoryError:
        raise DataError(f"{path}: a folder; {wanted}") from None
    except OSError as error:
        raise DataError(f"{path}: {reason_of(error)}") from None
    if len(content) > most:
        raise DataError(f"{path} has more than {most} bytes, the limit")
    encoding = "utf-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
        written = text.rstrip("\0")
        if "\0" not in written:  # as in UTF-32, and UTF-16 without a mark
            if written != text:
                _LOG.warning("%s ends in zeros, as after a power failure: what was there is lost", path)
            return written
    except UnicodeDecodeError:
        if b"\0" in content:
            raise DataError(f"{path}: not a text file; {wanted}") from None
    how = ", in Excel as CSV UTF-8" if path.suffix.lower() == ".csv" else ""
    raise DataError(f"{path}: not in UTF-8; save it as UTF-8{how}")
