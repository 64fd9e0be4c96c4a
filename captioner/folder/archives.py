"""Images in zip and tar archives, read without unpacking them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from captioner.errors import DataError, ImageUnreadableError
from captioner.folder.items import Found
from captioner.folder.sources import ARCHIVE_KINDS, LeftOut, Selection, Source, stamp_of, too_many_bytes

_DAMAGE = (tarfile.TarError, OSError, EOFError, lzma.LZMAError, zlib.error, ValueError, OverflowError)
"""Errors that reading a damaged tar archive raises."""


def open_archive(path: Path, selection: Selection | None = None) -> Source:
    """Open an archive. Raises `DataError` for a file that is neither zip nor tar, or is damaged."""
    kind = next(kind for suffix, kind in ARCHIVE_KINDS.items() if path.name.lower().endswith(suffix))
    source = ZipSource if kind == "zip" else TarSource
    try:
        return source(path, selection or Selection())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or 'damaged'}") from None
    except (zipfile.BadZipFile, NotImplementedError, *_DAMAGE) as error:
        raise DataError(f"{path}: not a {kind} archive, or damaged ({error})") from None


class ZipSource:
    """The images in a zip archive. The table of contents is held in memory, about 1 KB a file.

    Each has the stamp of the archive, so that all are read again when the archive has changed.
    """

    keeps_order = sequential = False

    def __init__(self, path: Path, selection: Selection) -> None:
        self._archive, self._stamp = zipfile.ZipFile(path), stamp_of(path.stat())
        self._selection = selection
        self.left_out = LeftOut()

    def find(self) -> Iterator[Found]:
        for number, member in enumerate(self._archive.infolist()):
            self.left_out.archives_within += self._selection.leaves_archive(member.filename)
            if member.is_dir() or not self._selection.takes_path(member.filename):
                continue
            problem = "encrypted" if member.flag_bits & 1 else ""
            yield Found(member.filename, str(number).encode(), self._stamp, problem)

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        member = self._archive.infolist()[int(locator)]
        try:
            with self._archive.open(member) as stream:
                data = stream.read(max_bytes + 1)  # the size that the archive claims may be a lie
        except Exception as error:  # zipfile and its decompressors share no base
            raise ImageUnreadableError("damaged in the archive") from error
        if len(data) > max_bytes:
            raise too_many_bytes(max_bytes)
        return data, self._stamp

    def close(self) -> None:
        self._archive.close()


_OPENERS: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)


class TarSource:
    """The images in a tar archive, compressed or not, in their order there: a compressed archive can only
    be read from start to end. Stamps are as in `ZipSource`."""

    keeps_order = sequential = True

    def __init__(self, path: Path, selection: Selection) -> None:
        self._path, self._selection = path, selection
        tarfile.open(path).close()
        self._stream, self._stamp = _decompress(path), stamp_of(path.stat())
        self._turn = threading.Lock()
        self.left_out = LeftOut()

    def find(self) -> Iterator[Found]:
        try:
            with _decompress(self._path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
                while (member := archive.next()) is not None:
                    archive.members = []  # type: ignore[attr-defined]  # or it would keep them all
                    name = member.name.removeprefix("./")
                    is_archive = self._selection.leaves_archive(name) and not member.isdir()
                    self.left_out.archives_within += is_archive
                    if member.isdir() or not self._selection.takes_path(name):
                        continue
                    plain = member.isreg() and not member.issparse()
                    locator = f"{member.offset_data} {member.size}".encode()
                    yield Found(name, locator, self._stamp, "" if plain else "not a regular file")
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


def _decompress(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        head = file.read(8)
    opener = next((opener for magic, opener in _OPENERS if head.startswith(magic)), None)
    stream: IO[bytes] = path.open("rb") if opener is None else opener(path)
    return stream
