"""Opens PNG files without the metadata that captioning does not need.

Pillow rejects a file whose text unfolds to more than a megabyte, as that of image generators and large colour
profiles does, and one with a wrong checksum in a comment, although viewers show both. It gets the chunks that
say how the pixels look.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from PIL.PngImagePlugin import PngImageFile

from captioner.images.color import MAX_PROFILE_BYTES

_SIGNATURE_BYTES, _HEAD_BYTES = 8, 8
_CRC_BYTES = 4
_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
"""Read as they are: Pillow checks their sums."""
_EXIF, _PROFILE = b"eXIf", b"iCCP"
_MAX_SMALL = 2**20
"""Larger EXIF is ignored."""
_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_TEXTS_KEPT = (b"XML:com.adobe.xmp", b"Raw profile type ")
"""What texts that may say how the image is turned, or have keywords, begin with."""


class _Chunk(NamedTuple):
    name: bytes
    start: int
    """Where the whole chunk starts in the file, in bytes."""
    data: int
    end: int
    """Behind the checksum; beyond the end of a file that is cut short."""


def open_png(stream: IO[bytes]) -> PngImageFile:
    """A PNG file as a Pillow image, its header read. Raises what Pillow raises for damaged files."""
    kept, profile = [(0, _SIGNATURE_BYTES)], None
    for chunk in _chunks(stream):
        if chunk.name == _PROFILE:
            profile = _profile(_read(stream, chunk))
        elif chunk.name in _PIXELS or _is_useful(stream, chunk):
            if kept[-1][1] == chunk.start:
                kept[-1] = (kept[-1][0], chunk.end)
            else:
                kept.append((chunk.start, chunk.end))
    image = PngImageFile(io.BufferedReader(_Parts(stream, kept)))
    if profile:
        image.info["icc_profile"] = profile
    return image


def _chunks(stream: IO[bytes]) -> Iterator[_Chunk]:
    start = _SIGNATURE_BYTES
    while True:
        stream.seek(start)
        head = stream.read(_HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return
        length, name = int.from_bytes(head[:4], "big"), head[4:]
        data = start + _HEAD_BYTES
        yield _Chunk(name, start, data, data + length + _CRC_BYTES)
        if name == b"IEND":
            return
        start = data + length + _CRC_BYTES


def _is_useful(stream: IO[bytes], chunk: _Chunk) -> bool:
    """Whether a chunk that is not of the pixels is whole, and says something that is used."""
    if chunk.name not in (_EXIF, *_TEXTS) or chunk.end - chunk.data > _MAX_SMALL:
        return False
    data = _read(stream, chunk)
    if data is None or chunk.name == _EXIF:
        return data is not None
    if not data.startswith(_TEXTS_KEPT):
        return False
    packed = _packed_text(chunk.name, data)
    return packed is None or _unpack(packed, _MAX_SMALL) is not None


def _packed_text(name: bytes, data: bytes) -> bytes | None:
    """What zlib has packed in a chunk of text; None if the text is plain."""
    _, _, rest = data.partition(b"\0")
    if name == b"zTXt":
        return rest[1:]  # behind the method
    if name == b"iTXt" and rest[:1] == b"\1":
        return rest[2:].split(b"\0", 2)[-1]  # behind a language and a translation of the keyword
    return None


def _read(stream: IO[bytes], chunk: _Chunk) -> bytes | None:
    """The data of a chunk; None if it is damaged."""
    if chunk.end - chunk.data > MAX_PROFILE_BYTES:
        return None
    stream.seek(chunk.data)
    data = stream.read(chunk.end - chunk.data)
    checksum = zlib.crc32(data[:-_CRC_BYTES], zlib.crc32(chunk.name)).to_bytes(_CRC_BYTES, "big")
    return data[:-_CRC_BYTES] if data[-_CRC_BYTES:] == checksum else None


def _profile(data: bytes | None) -> bytes | None:
    """The colour profile in a chunk: a name, a null byte, how it is packed (0 is zlib), and the packed
    profile. None if it is damaged or too large to be used."""
    return None if data is None else _unpack(data[data.find(b"\0") + 2 :], MAX_PROFILE_BYTES)


def _unpack(data: bytes, most: int) -> bytes | None:
    """What zlib has packed; None if it is damaged or unfolds to more bytes than `most`."""
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, most)
    except zlib.error:
        return None
    return None if unpacker.unconsumed_tail else unpacked


class _Parts(io.RawIOBase):
    """Parts of a file as one."""

    def __init__(self, stream: IO[bytes], parts: list[tuple[int, int]]) -> None:
        """`parts` are (start, end) in the file, in order."""
        self._stream, self._parts = stream, parts
        self._position = 0
        self._length = sum(end - start for start, end in parts)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = max(0, begin + offset)
        return self._position

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]  # a writable buffer, as readinto takes
        position = self._position
        for start, end in self._parts:
            if position < end - start:
                self._stream.seek(start + position)
                data = self._stream.read(min(len(buffer), end - start - position))
                buffer[: len(data)] = data
                self._position += len(data)
                return len(data)
            position -= end - start
        return 0
