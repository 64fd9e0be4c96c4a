"""The supported image formats: their signatures, decoders and memory use."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import IO, Any

from PIL import Image

from captioner.errors import NotAnImageError, OptionsError, clip, how_to_install
from captioner.images.formats import raw
from captioner.images.formats.no_photos import kind_of

# Name: first bytes, module, what there opens a stream.
FORMATS = {
    "RAW": (raw.SIGNATURE, "captioner.images.formats.raw", "open_preview"),
    # MPO too: its first picture.
    "JPEG": (rb"\xff\xd8\xff", "captioner.images.formats.jpeg", "TolerantJpegFile"),
    "PNG": (rb"\x89PNG\r\n\x1a\n", "captioner.images.formats.png", "open_png"),
    "WebP": (rb"RIFF.{4}WEBP", "PIL.WebPImagePlugin", "WebPImageFile"),
    "AVIF": (rb".{4}ftyp(?:.{4}){0,12}?avi[fs]", "PIL.AvifImagePlugin", "AvifImageFile"),
    "GIF": (rb"GIF8[79]a", "PIL.GifImagePlugin", "GifImageFile"),
    "TIFF": (rb"II[*+]\0|MM\0[*+]", "captioner.images.formats.tiff", "open_tiff"),
    "BMP": (rb"BM", "PIL.BmpImagePlugin", "BmpImageFile"),
    "JPEG 2000": (rb"\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51", "PIL.Jpeg2KImagePlugin", "Jpeg2KImageFile"),
    "PNM": (rb"P[1-6]\s", "PIL.PpmImagePlugin", "PpmImageFile"),
    "HEIC": (
        rb".{4}ftyp(?:.{4}){0,12}?(?:hei[cxms]|hev[cxms]|mif1|msf1)",
        "pillow_heif.as_plugin",
        "HeifImageFile",
    ),
}
ALL_FORMATS = tuple(FORMATS)
SAFE_FORMATS = ("JPEG", "PNG", "WebP", "AVIF", "GIF", "TIFF", "BMP", "PNM")
"""What strangers may send. JPEG 2000 is not among them, because its decoder takes ten times as long per pixel
as the others; nor are rare formats that other libraries or our own code read."""

_UNSUPPORTED = {
    "JPEG XL": rb"\xff\x0a|\0\0\0\x0cJXL ",
}
HEAD_BYTES = 256
"""Bytes from the beginning that determine the format, or what else a file is."""

# Bytes of memory a pixel that decoding takes at its peak, measured; others need what their mode needs.
_DECODER_BYTES = {"WebP": 16, "AVIF": 9, "JPEG 2000": 20, "HEIC": 9}
_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2, "LA": 4, "PA": 4}


def detect_format(head: bytes, accepted: Iterable[str] = ALL_FORMATS) -> str:
    """The name of the format that a file begins like. Raises `NotAnImageError` if it is not accepted."""
    if not head:
        raise NotAnImageError("the file is empty")
    accepted = tuple(accepted)
    for name, (signature, _, _) in FORMATS.items():
        if re.match(signature, head, re.DOTALL):
            if name not in accepted:
                raise NotAnImageError(
                    f"{name} is not accepted here, only {', '.join(accepted)}; convert the image to JPEG, or "
                    "start the server with --formats all"
                )
            return name
    for name, signature in _UNSUPPORTED.items():
        if re.match(signature, head, re.DOTALL):
            raise NotAnImageError(f"{name} is not supported; convert the image to JPEG or PNG")
    common = ", ".join(name for name in accepted if name in SAFE_FORMATS)
    kind = f": it is {kind}" if (kind := kind_of(head)) else ""
    raise NotAnImageError(f"not an image in a known format ({common or accepted[0]}){kind}")


def open_format(name: str, stream: IO[bytes]) -> Any:
    """A file of that format as a Pillow image, its header read. Raises `NotAnImageError` where the package
    that reads the format is not installed, and whatever Pillow raises for damaged files."""
    _, module, opens = FORMATS[name]
    try:
        opener = getattr(importlib.import_module(module), opens)
    except ImportError:
        raise NotAnImageError(
            f"reading {name} needs {how_to_install('photos')}; or convert the image to JPEG"
        ) from None
    return opener(stream)


def memory_of(name: str, image: Image.Image, full_size: tuple[int, int]) -> int:
    """Bytes that decoding takes at its peak, about. The image's header has been read; `full_size` is what it
    says of width and height, also where a JPEG is going to be decoded at less."""
    width, height = image.size
    count = width * height * max(_DECODER_BYTES.get(name, 0), _MODE_BYTES.get(image.mode, 4))
    if name in ("JPEG", "RAW") and "progressive" in image.info:  # all coefficients are kept, two bytes each
        count += full_size[0] * full_size[1] * 2 * len(image.getbands())
    return count


def parse_formats(text: str) -> tuple[str, ...]:
    """Names of formats separated by commas, in any case, "all" for all. Raises `OptionsError`."""
    if text.strip().lower() == "all":
        return ALL_FORMATS
    known = {_plain(name): name for name in FORMATS}
    found = []
    for name in text.split(","):
        if _plain(name) not in known:
            raise OptionsError(
                f"{clip(repr(name.strip()))} is not an image format; there are {', '.join(FORMATS)}",
                "formats",
            )
        found.append(known[_plain(name)])
    return tuple(dict.fromkeys(found))


def _plain(name: str) -> str:
    return name.replace(" ", "").replace("-", "").lower()
