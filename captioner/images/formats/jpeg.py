"""Opens JPEG files, also those that have all of their pixels and lack only the marker of their end."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from PIL.JpegImagePlugin import JpegImageFile

_END = b"\xff\xd9"
_FILLINGS = (b"", b"\x55" * 4096, b"\xaa" * 4096)
"""Data that change pixels which are still missing, each in another way."""
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")
"""Ends the data of a scan: anything but a stuffed byte and the marks of restarts."""
_SCAN = 0xDA
_ALL = frozenset(range(64))
"""The coefficients of a block."""


class TolerantJpegFile(JpegImageFile):
    """A JPEG file as a Pillow image. Raises `OSError` for one that is cut short, as Pillow does, unless no
    pixel is missing."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._drafted: tuple[Any, Any] | None = None
        super().__init__(stream)

    def draft(self, mode: Any, size: Any) -> Any:
        self._drafted = (mode, size)
        return super().draft(mode, size)

    def load(self) -> Any:
        try:
            return super().load()
        except OSError:
            if (whole := self._completed()) is None:
                raise
        self.im, self.tile = whole.im, []
        return super().load()

    def _completed(self) -> JpegImageFile | None:
        """The image with the marker of its end; None if pixels are missing: then what stands before the
        marker makes a difference."""
        self._stream.seek(0)
        data = self._stream.read().rstrip(b"\xff")
        if data.endswith(_END) or not _has_all_scans(data, len(self.getbands())):
            return None
        found, *others = (self._decoded(data + filling + _END) for filling in _FILLINGS)
        if found is None or any(one is None or one.tobytes() != found.tobytes() for one in others):
            return None
        return found

    def _decoded(self, data: bytes) -> JpegImageFile | None:
        image = JpegImageFile(io.BytesIO(data))
        if self._drafted is not None:
            image.draft(*self._drafted)
        try:
            image.load()
        except OSError:
            return None
        return image


def _has_all_scans(data: bytes, components: int) -> bool:
    """Whether the last refinement of every coefficient has begun, in files of one scan and of many."""
    refined: dict[int, set[int]] = {}
    for scan in _scans(data):
        count = scan[0]
        first, last, precision = scan[1 + 2 * count : 4 + 2 * count]
        if precision % 16 == 0:  # with all of its bits
            for component in scan[1 : 1 + 2 * count : 2]:
                refined.setdefault(component, set()).update(range(first, last + 1))
    return len(refined) == components and all(found >= _ALL for found in refined.values())


def _scans(data: bytes) -> Iterator[bytes]:
    """The headers of the scans."""
    place = 2
    while place < len(data) and (marker := _MARKER.search(data, place)):
        length = int.from_bytes(data[marker.end() : marker.end() + 2], "big")
        segment = data[marker.end() + 2 : marker.end() + length]
        if marker[1][0] == _SCAN and len(segment) > 3:
            yield segment
        place = marker.end() + max(2, length)
