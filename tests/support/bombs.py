"""Images of few bytes that take their decoder long, or much memory."""

from __future__ import annotations

import io
import struct
import zlib

from PIL import Image


def scan_bomb(scans: int = 4000) -> bytes:
    """A progressive JPEG of many scans without data, 10 bytes each, which all pass over the whole image."""
    buffer = io.BytesIO()
    Image.new("L", (4000, 4000), 77).save(buffer, "JPEG", progressive=True)
    whole = buffer.getvalue()
    empty = b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 0, 0, 0x10)  # refines the mean of each block
    return whole[:-2] + empty * scans + whole[-2:]


def strip_bomb() -> bytes:
    """A TIFF of one pixel a strip, all strips in the same place."""
    strips = 1_000_000
    entries = [
        (256, 4, 1, 1),  # width
        (257, 4, 1, strips),  # length
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (277, 3, 1, 1),
        (278, 4, 1, 1),  # rows a strip
    ]
    data = 8 + 2 + 12 * (len(entries) + 2) + 4
    entries += [(273, 4, strips, data), (279, 4, strips, data + 4 * strips)]
    entries.sort()
    head = b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(entries))
    head += b"".join(
        struct.pack("<HHI", tag, kind, count) + struct.pack("<I", value)
        for tag, kind, count, value in entries
    )
    head += struct.pack("<I", 0)
    return head + struct.pack("<I", 8) * strips + struct.pack("<I", 1) * strips


def text_bomb() -> bytes:
    """A PNG of one pixel with very many text chunks."""
    texts = (_chunk(b"tEXt", b"k%d\0v" % number) for number in range(500_000))
    return _png_with(b"".join(texts))


def profile_bomb(size: int = 2**28) -> bytes:
    """A PNG of one pixel whose colour profile inflates to this many bytes."""
    return _png_with(_chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(size), 1)))


def exif_bomb(entries: int = 2000) -> bytes:
    """A JPEG whose EXIF refers to itself, in lists that claim to be of billions of values."""
    looped = b"".join(
        struct.pack("<HHII", tag, 4, 2**32 - 1 if tag % 3 else 1, 8)
        for tag in sorted((0x8769, 0x8825, 0xA005, 0x14A, 0x112, *range(0x9000, 0x9000 + entries)))
    )
    count = len(looped) // 12
    exif = b"II*\0" + struct.pack("<IH", 8, count) + looped + struct.pack("<I", 8)
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG", exif=b"Exif\0\0" + exif)
    return buffer.getvalue()


def heic_bomb(side: int = 60_000) -> bytes:
    """A HEIC file that claims this many pixels a side. Needs the extra [photos]."""
    import pillow_heif

    buffer = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 64))).save(buffer)
    whole = buffer.getvalue()
    size = whole.index(b"ispe") + 8
    return whole[:size] + struct.pack(">II", side, side) + whole[size + 8 :]


def _png_with(chunks: bytes) -> bytes:
    """A PNG of one pixel with more chunks."""
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "PNG")
    whole = buffer.getvalue()
    head = len(b"\x89PNG\r\n\x1a\n") + 25  # with its IHDR
    return whole[:head] + chunks + whole[head:]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def large(format: str, side: int, mode: str = "RGB") -> bytes:
    """A plain image of side x side pixels."""
    buffer = io.BytesIO()
    options = {"compress_level": 1} if format == "PNG" else {"method": 0} if format == "WEBP" else {}
    Image.new(mode, (side, side)).save(buffer, format, **options)
    return buffer.getvalue()
