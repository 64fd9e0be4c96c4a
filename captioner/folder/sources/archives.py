"""Images in zip and tar archives, read without unpacking them."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import os
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from captioner.errors import DataError, ImageUnreadableError, reason_of
from captioner.files.zip_archive import Bounded, ZipArchive
from captioner.folder.items import ListedImage
from captioner.folder.sources.files import stamp_of
from captioner.folder.sources.selection import Selection
from captioner.folder.sources.source import LeftOut, Source
from captioner.images.limits import too_many_bytes
from captioner.images.suffixes import ARCHIVE_KINDS

_DAMAGE = (
    *(tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error),
    *(ValueError, OverflowError, RecursionError),
)
"""Errors that reading a damaged tar archive raises."""
MAX_HEADER_BYTES = 2**20
"""What the header of a member of a tar archive may hold, with its long names and extended fields."""
MAX_FIELDS = 1000
"""Extended fields that may hold for all members of a tar archive."""
MAX_UNFOLDING, FREE_BYTES = 200, 2**26
"""How many times its size an archive may unfold to while it is listed, beside the first bytes. Photos hardly
shrink at all."""
MAX_XZ_MEMORY = 2**27
"""Twice what the highest level of xz needs."""


def open_archive(path: Path, selection: Selection | None = None) -> Source:
    """Open an archive. Raises `DataError` for a file that is neither zip nor tar, or is damaged."""
    kind = next(kind for suffix, kind in ARCHIVE_KINDS.items() if path.name.lower().endswith(suffix))
    source = ZipSource if kind == "zip" else TarSource
    try:
        return source(path, selection or Selection())
    except OSError as error:
        raise DataError(f"{path}: {reason_of(error, 'damaged')}") from None
    except (zipfile.BadZipFile, NotImplementedError, *_DAMAGE) as error:
        raise DataError(f"{path}: not a {kind} archive, or damaged ({error})") from None


class ZipSource:
    """The images in a zip archive. The table of contents is held in memory, about 1 KB a file.

    Each has the stamp of the archive, so that all are read again when the archive has changed.
    """

    keeps_order = sequential = False

    def __init__(self, path: Path, selection: Selection) -> None:
        self._archive, self._selection = ZipArchive(path), selection
        self._stamp = stamp_of(self._archive.status)
        self.left_out = LeftOut()

    def find(self) -> Iterator[ListedImage]:
        for number, member in enumerate(self._archive.infolist()):
            self.left_out.archives_within += self._selection.leaves_archive(member.filename)
            if member.is_dir() or not self._selection.takes_path(member.filename):
                continue
            problem = "encrypted" if member.flag_bits & 1 else ""
            yield ListedImage(member.filename, str(number).encode(), self._stamp, problem)

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        member = self._archive.infolist()[int(locator)]
        try:
            data = self._archive.read_at_most(member, max_bytes + 1)
        except Exception as error:  # zipfile and its decompressors share no base
            raise ImageUnreadableError("damaged in the archive") from error
        if len(data) > max_bytes:
            raise too_many_bytes(max_bytes)
        return data, self._stamp

    def close(self) -> None:
        self._archive.close()


class _XzReader(io.RawIOBase):
    """An xz file unfolded, with a limit of memory, which `lzma.open` lacks: a file names the size of the
    dictionary itself."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._rewind()

    def _rewind(self) -> None:
        self._file.seek(0)
        self._position, self._decompressor = 0, lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = len(buffer)
        while room:
            decompressor = self._decompressor
            if decompressor.eof:  # of one stream; another may follow, after padding
                rest = decompressor.unused_data.lstrip(b"\0")
                while not rest and (more := self._file.read(2**16)):
                    rest = more.lstrip(b"\0")
                if not rest:
                    break
                self._decompressor = lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY)
                data = self._decompressor.decompress(rest, room)
            else:
                more = self._file.read(2**16) if decompressor.needs_input else b""
                if decompressor.needs_input and not more:
                    raise EOFError("the compressed file ends early")
                data = decompressor.decompress(more, room)
            if data:
                buffer[: len(data)] = data
                self._position += len(data)
                return len(data)
        return 0

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence != io.SEEK_SET:
            raise ValueError("only from the start")
        if offset < self._position:
            self._rewind()
        while self._position < offset:
            if not self.read(min(2**16, offset - self._position)):
                break
        return self._position

    def tell(self) -> int:
        return self._position


_OPENERS: tuple[tuple[bytes, Callable[[IO[bytes]], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lambda file: io.BufferedReader(_XzReader(file))),
)


class TarSource:
    """The images in a tar archive, compressed or not, in their order there: a compressed archive can only
    be read from start to end. Stamps are as in `ZipSource`."""

    keeps_order = sequential = True

    def __init__(self, path: Path, selection: Selection) -> None:
        self._path, self._selection = path, selection
        self._file = path.open("rb")
        try:
            status = os.fstat(self._file.fileno())  # before it is read
            self._size, self._stamp = status.st_size, stamp_of(status)
            self._stream = _decompress(self._file)
            _open_tar(Bounded(self._stream, MAX_HEADER_BYTES))  # the first header can be read
        except BaseException:
            self._file.close()
            raise
        self._turn = threading.Lock()
        self.left_out = LeftOut()

    def find(self) -> Iterator[ListedImage]:
        """Nothing may be read meanwhile. Raises `DataError` for a damaged archive."""
        size, stream = self._size, self._stream
        end = None if stream is self._file else size * MAX_UNFOLDING + FREE_BYTES
        try:
            stream.seek(0)
            bounded = Bounded(stream, MAX_HEADER_BYTES, end)
            archive = _open_tar(bounded)
            for count in itertools.count(1):
                bounded.left = MAX_HEADER_BYTES
                if (member := archive.next()) is None:
                    break
                fields = archive.pax_headers.values()
                if len(fields) > MAX_FIELDS or sum(map(len, fields)) > MAX_HEADER_BYTES:
                    raise tarfile.ReadError("extended fields that are too large")
                if end is not None and count > 10_000 + size // 100:
                    raise tarfile.ReadError("more members than a file of its size can hold")
                archive.members = []  # type: ignore[attr-defined]  # or it would keep them all
                name = member.name.removeprefix("./")
                is_archive = self._selection.leaves_archive(name) and not member.isdir()
                self.left_out.archives_within += is_archive
                if member.isdir() or not self._selection.takes_path(name):
                    continue
                plain = member.isreg() and not member.issparse()
                locator = f"{member.offset_data} {member.size}".encode()
                yield ListedImage(name, locator, self._stamp, "" if plain else "not a regular file")
            # tarfile takes a damaged header for the end, and what follows would be lost in silence.
            stream.seek(archive.offset)
            if any(stream.read(tarfile.BLOCKSIZE)):
                raise tarfile.ReadError("invalid header after the last readable member")
        except _DAMAGE as error:
            raise DataError(f"{self._path}: damaged or cut short ({error})") from None

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        offset, size = locator.decode().split(" ")
        if int(size) > max_bytes:
            raise too_many_bytes(max_bytes)
        with self._turn:
            try:
                self._stream.seek(int(offset))
                data = self._stream.read(int(size))
            except _DAMAGE as error:
                raise ImageUnreadableError("damaged in the archive") from error
        if len(data) < int(size):
            raise ImageUnreadableError("cut short in the archive")
        return data, self._stamp

    def close(self) -> None:
        with self._turn:
            self._stream.close()
            self._file.close()


def _open_tar(file: Bounded) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="r:")  # type: ignore[call-overload]


def _decompress(file: IO[bytes]) -> IO[bytes]:
    """The file unfolded; the file itself if it is not compressed."""
    head = file.read(8)
    file.seek(0)
    opener = next((opener for magic, opener in _OPENERS if head.startswith(magic)), None)
    stream: IO[bytes] = file if opener is None else opener(file)
    return stream
