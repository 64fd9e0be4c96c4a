"""Zip archives of strangers: neither their tables of contents nor their members take all memory."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import IO

from captioner.errors import DataError, reason_of

MAX_DIRECTORY_BYTES = 2**25
"""Largest directory of a zip archive: about 300,000 members, which take some 20 times as much memory."""
_PIECE_BYTES = 2**6
"""Some decompressors of zip members unfold all that they are given. So few bytes hold at most two blocks of
bzip2, of 46 MB each."""


class ZipArchive(zipfile.ZipFile):
    """A zip archive that is read. Raises `ValueError` for a table of contents that is too large, and what
    `zipfile.ZipFile` raises."""

    _opened: IO[bytes] | None = None
    """None where it could not be opened."""

    def __init__(self, path: Path) -> None:
        self.path, file = path, path.open("rb")
        try:
            bounded = Bounded(file, MAX_DIRECTORY_BYTES)
            self.status = os.fstat(file.fileno())  # before it is read
            super().__init__(bounded)
        except BaseException:
            file.close()
            raise
        bounded.left = None
        self._opened = file

    def read_at_most(self, member: zipfile.ZipInfo, most: int) -> bytes:
        """The first `most` bytes of a member: the size that the archive claims may be a lie. Raises errors
        without a common base, as its decompressors do."""
        with self.open(member) as stream:
            if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                return stream.read(most)
            assert isinstance(stream, zipfile.ZipExtFile)
            stream.MIN_READ_SIZE = _PIECE_BYTES  # instead of 4096
            data = bytearray()
            while len(data) < most and (piece := stream.read(_PIECE_BYTES)):
                data += piece
            return bytes(data)

    def close(self) -> None:
        super().close()
        if self._opened is not None:
            self._opened.close()


def open_zip(path: Path) -> ZipArchive:
    """A zip file with images of a data set. Raises `DataError`."""
    try:
        return ZipArchive(path)
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        reason = reason_of(error, f"neither a folder nor a zip file, or damaged ({error})")
        raise DataError(f"{path}: {reason}") from None


class Bounded:
    """A file for tarfile and zipfile, which read headers of any size. Raises `ValueError` instead."""

    def __init__(self, file: IO[bytes], left: int, end: int | None = None) -> None:
        """`left` bytes may be read; `end` is the position that may not be passed."""
        self._file, self._end = file, end
        self.left: int | None = left
        """None for any number."""
        self.seekable, self.tell, self.close = file.seekable, file.tell, file.close

    def read(self, size: int = -1) -> bytes:
        if self.left is None:
            return self._file.read(size)
        data = self._file.read(self.left + 1 if size < 0 else min(size, self.left + 1))
        if len(data) > self.left:
            raise ValueError("a table of contents or a header that is too large")
        self.left -= len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        if self._end is not None and offset > self._end:
            raise ValueError(f"it would unfold to more than {self._end} bytes")
        return self._file.seek(offset, whence)
