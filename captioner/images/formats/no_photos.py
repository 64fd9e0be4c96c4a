"""What files are that are taken for photos, by their first bytes."""

from __future__ import annotations

import re

_MARKUP = rb"(?:\xef\xbb\xbf)?\s*(?:<[?!].*?)?"  # a declaration and comments
# Tried in this order. Many of the others are text, too, which is therefore the last.
_KINDS = {
    "a pointer of Git LFS; git lfs pull gets the file": rb"version https://git-lfs",
    "an HTML page": _MARKUP + rb"<(?i:!doctype html|html|head|body)\b",
    "an SVG drawing": _MARKUP + rb"<(?:!DOCTYPE )?(?:svg:)?svg\b",
    "a PDF": rb"%PDF-",
    "PostScript (EPS)": rb"%!PS|\xc5\xd0\xd3\xc6",
    "sound (M4A)": rb".{4}ftypM4[AB]",
    "a video (MP4 or MOV)": (
        rb".{4}(?:ftyp(?:isom|iso[2-9]|mp4[12]|mmp4|avc1|M4V |MSNV|dash|qt  |3g[2p])|moov|mdat|wide)"
    ),
    "a video (WebM or Matroska)": rb"\x1a\x45\xdf\xa3",
    "a video (AVI)": rb"RIFF.{4}AVI ",
    "an archive, or a document packed like one": rb"PK(?:\x03\x04|\x05\x06)|7z\xbc\xaf\x27\x1c|Rar!|\x1f\x8b",
    "a Photoshop document (PSD)": rb"8BP[SB]",
    "an icon (ICO or ICNS)": rb"\0\0\x01\0|icns",
    "a GIMP picture (XCF)": rb"gimp xcf ",
    "a DjVu document": rb"AT&TFORM",
    "a medical image (DICOM)": rb".{128}DICM",
    "a RAW photo of a kind that is not read": rb"FOVb|\0MRM",  # X3F of Sigma, MRW of Minolta
    # All of it printable; UTF-8, perhaps cut within a character.
    "text": rb"(?:[\t\n\f\r -~]|[\xc2-\xf4][\x80-\xbf]+)+[\xc2-\xf4]?\Z",
}


def kind_of(head: bytes) -> str | None:
    """What a file is that begins so, in words that hold nothing of its content; None if they do not tell."""
    return next((kind for kind, begins in _KINDS.items() if re.match(begins, head, re.DOTALL)), None)
