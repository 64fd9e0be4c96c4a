"""RAW photos of cameras: reads the largest embedded JPEG preview.

Developing a RAW file takes seconds and requires choices about colour; the preview is the picture that the
camera made. Previews are found by their signature, so that no library of camera formats is needed.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from typing import IO

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile

from captioner.errors import NotAnImageError

SIGNATURE = rb"II\*\0.{4}CR|.{4}ftypcrx |FUJIFILMCCD-RAW|IIR[OS]|MMOR|IIU\0"  # CR2, CR3, RAF, ORF, RW2
"""How RAW files begin that do not begin like TIFF; `is_raw` tells the others."""

_START = re.compile(rb"\xff\xd8\xff[\xc0-\xc4\xdb\xdd\xe0-\xef\xfe]")
_LOSSLESS = b"\xff\xc3"
_MAX_PREVIEWS = 32
_ORIENTATION, _SUBFILE_TYPE, _SUB_IFDS, _DNG_VERSION = 0x0112, 254, 330, 50706


def is_raw(image: Image.Image) -> bool:
    """Whether an opened TIFF is a RAW file: DNG, or one that begins with a thumbnail of what follows (NEF,
    ARW, PEF)."""
    tags = getattr(image, "tag_v2", {})
    return _DNG_VERSION in tags or (tags.get(_SUBFILE_TYPE) == 1 and _SUB_IFDS in tags)


def open_preview(stream: IO[bytes]) -> JpegImageFile:
    """The largest preview, turned as the file says. Raises `NotAnImageError` if there is none."""
    stream.seek(0)
    content = stream.read()
    image = max(_previews(content), key=lambda image: image.width * image.height, default=None)
    if image is None:
        raise NotAnImageError("the RAW file has no JPEG preview; convert it to JPEG")
    exif = image.getexif()
    if _ORIENTATION not in exif:
        exif[_ORIENTATION] = _orientation(content)
    return image


def _previews(content: bytes) -> Iterator[JpegImageFile]:
    for match in itertools.islice(_START.finditer(content), _MAX_PREVIEWS):
        start = match.start()
        try:
            image = JpegImageFile(io.BytesIO(memoryview(content)[start:]))
        except Exception:  # these bytes occur in other data too
            continue
        if not _is_lossless(content[start : start + 4096]):
            yield image


def _is_lossless(head: bytes) -> bool:
    """Whether it is the sensor's data, which DNG and CR2 pack as JPEG of a kind that Pillow cannot decode."""
    at = 2
    while at + 4 <= len(head) and head[at] == 0xFF:
        if head[at : at + 2] == _LOSSLESS:
            return True
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return False


def _orientation(content: bytes) -> int:
    try:
        return int(TiffImageFile(io.BytesIO(content)).getexif().get(_ORIENTATION, 1))
    except Exception:  # not every RAW file is a TIFF
        return 1
