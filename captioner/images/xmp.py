"""XMP in files of all formats, read without what XML allows beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

_BEGIN, _END = b"<rdf:RDF", b"</rdf:RDF>"
_ITEM = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}li"
_DC, _IPTC = "{http://purl.org/dc/elements/1.1/}", "{http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/}"
SUBJECT, DESCRIPTION, ALT_TEXT = f"{_DC}subject", f"{_DC}description", f"{_IPTC}AltTextAccessibility"
_OF_CAMERAS = re.compile(
    r"((olympus|konica|minolta|samsung|sanyo|sony|kodak|casio|pentax|hp|default) )*(digital (still )?camera|dsc)|"
    r"exif_jpeg\w*|dcim[\\/].*|jpeg|default|screenshot|processed with \w+|",
    re.IGNORECASE,
)
MAX_PACKET_BYTES = 2**23
"""A longer packet is not read. Its elements take up to fifty times as much memory."""
_SIDECAR_FOR = "{http://ns.adobe.com/photoshop/1.0/}SidecarForExtension"


def read_packets(content: bytes) -> Iterator[ElementTree.Element]:
    """The RDF in a file, without what is not well-formed. Entities cannot be declared in it, as there is
    nothing before its first element."""
    for packet in _packets(content):
        try:
            yield ElementTree.fromstring(packet)
        except ElementTree.ParseError:
            continue


def _packets(content: bytes) -> Iterator[bytes]:
    # XMP is plain text in every format, so that it can be found without a decoder for each.
    end = 0
    while (start := content.find(_BEGIN, end)) >= 0:
        last = content.find(_END, start)
        if last < 0:
            return
        end = last + len(_END)
        if end - start <= MAX_PACKET_BYTES:
            yield content[start:end]


def items_of(packet: ElementTree.Element, name: str) -> Iterator[str]:
    """The texts of a property with several; of one in several languages, the default is the first."""
    for found in packet.iter(name):
        # Not `found.iter`, which would go through properties within this one again and again.
        yield from (item.text or "" for item in found.iterfind(f"*/{_ITEM}"))


def is_of_camera(text: str) -> bool:
    """Whether a description is none, or what cameras write as that of every photo."""
    return _OF_CAMERAS.fullmatch(text) is not None


def sidecar_extension(packet: ElementTree.Element) -> str:
    """That of the photo which a file of Lightroom is for, in small letters; empty if it names none."""
    for one in packet.iter():
        if extension := one.get(_SIDECAR_FOR) or (one.text if one.tag == _SIDECAR_FOR else None):
            return extension.lower()
    return ""
