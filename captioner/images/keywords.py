"""The keywords that a photo carries: `dc:subject` of its XMP, and those of IPTC."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from PIL import IptcImagePlugin

from captioner.images.formats import HEAD_BYTES, detect_format, open_format
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.sources import ImageInput, read_file
from captioner.images.xmp import SUBJECT, items_of, read_packets

_IPTC_KEYWORDS = (2, 25)


def read_keywords(image: ImageInput, limits: ImageLimits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """The keywords in a file, in their order, each once; none if it has none or is not an image file.

    Raises `ImageUnreadableError` and `ImageTooLargeError` as `open_image` does.
    """
    content = read_file(image, limits)
    of_xmp = (text for packet in read_packets(content) for text in items_of(packet, SUBJECT))
    found = [*of_xmp, *_from_iptc(content)]
    return tuple(dict.fromkeys(keyword for text in found if (keyword := text.strip())))


def _from_iptc(content: bytes) -> Iterator[str]:
    try:
        name = detect_format(content[:HEAD_BYTES])
        values: Any = (IptcImagePlugin.getiptcinfo(open_format(name, io.BytesIO(content))) or {}).get(
            _IPTC_KEYWORDS, []
        )
    except Exception:  # no image, or damaged metadata, which make Pillow raise many kinds of errors
        return
    for value in values if isinstance(values, list) else [values]:
        try:
            yield value.decode()
        except UnicodeDecodeError:
            yield value.decode("latin-1")
