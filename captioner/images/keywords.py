"""The keywords that a photo carries: `dc:subject` of its XMP, and those of IPTC."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from PIL import IptcImagePlugin

from captioner.images.formats import HEAD_BYTES, detect_format, open_format
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.sources import ImageInput, read_file

_BEGIN, _END = b"<rdf:RDF", b"</rdf:RDF>"
_SUBJECT = "{http://purl.org/dc/elements/1.1/}subject"
_ITEM = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
_IPTC_KEYWORDS = (2, 25)


def read_keywords(image: ImageInput, limits: ImageLimits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """The keywords in a file, in their order, each once; none if it has none or is not an image file.

    Raises `ImageUnreadableError` and `ImageTooLargeError` as `open_image` does.
    """
    content = read_file(image, limits)
    found = [*_from_xmp(content), *_from_iptc(content)]
    return tuple(dict.fromkeys(keyword for text in found if (keyword := text.strip())))


def _from_xmp(content: bytes) -> Iterator[str]:
    for packet in _packets(content):
        try:
            tree = ElementTree.fromstring(packet)
        except ElementTree.ParseError:
            continue
        for subject in tree.iter(_SUBJECT):
            yield from (item.text or "" for item in subject.iter(_ITEM))


def _packets(content: bytes) -> Iterator[bytes]:
    # XMP is plain text in every format, so that it can be found without a decoder for each.
    end = 0
    while (start := content.find(_BEGIN, end)) >= 0:
        last = content.find(_END, start)
        if last < 0:
            return
        end = last + len(_END)
        yield content[start:end]


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
