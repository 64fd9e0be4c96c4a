"""Captions in text files and XMP beside their photos."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from captioner.errors import DataError
from captioner.images.xmp import (
    ALT_TEXT,
    DESCRIPTION,
    is_of_camera,
    items_of,
    read_packets,
    sidecar_extension,
)
from captioner.references.bounded import MAX_SIDECAR_BYTES, read_text
from captioner.references.image import CaptionedImage
from captioner.references.listing import list_images

SIDECAR_SUFFIXES = (".txt", ".caption")
_XMP_SUFFIX = ".xmp"
_LOG = logging.getLogger(__name__)


class NoCaptionsError(DataError):
    """A folder has no captions."""


def read_sidecars(folder: Path, *, xmp_texts: int = 0) -> list[CaptionedImage]:
    """The images of a folder that have a text file beside them, one caption on each line: `a.jpg.txt` for
    `a.jpg`, or `a.txt`, which belongs to the first of the images that could have it; likewise `.caption`, and
    at most so many of the description and the alt text in `.xmp`. Raises `DataError`."""
    suffixes = (*SIDECAR_SUFFIXES, *([_XMP_SUFFIX] if xmp_texts else []))
    found, used, unreadable = [], set[Path](), list[str]()
    for name in list_images(folder):
        image = folder / name
        for beside in (
            place
            for suffix in suffixes
            for place in (image.with_name(image.name + suffix), image.with_suffix(suffix))
        ):
            # Path.is_file fails for names that are too long.
            is_new = os.path.isfile(beside) and beside not in used  # noqa: PTH113
            captions = _read_sidecar(beside, image, xmp_texts, unreadable) if is_new else []
            if captions:
                used.add(beside)
                found.append(CaptionedImage(name, tuple(captions), ""))
                break
        else:
            found.append(CaptionedImage(name, (), ""))
    if not used:
        metadata = min((*folder.glob("metadata.*"), *folder.glob("*/metadata.*")), default=None)
        hint = f"; if they are in {metadata}, give that file, as CSV or JSON lines" if metadata else ""
        hint = f": {unreadable[0]}" if unreadable else hint
        raise NoCaptionsError(f"{folder}: no image has a text file with a caption beside it{hint}")
    return found


def _read_sidecar(path: Path, image: Path, xmp_texts: int, unreadable: list[str]) -> list[str]:
    """The captions in a file; none, with a warning, if it cannot be read, and the reason in `unreadable`."""
    is_xmp = path.suffix == _XMP_SUFFIX
    try:
        text = read_text(path, MAX_SIDECAR_BYTES, wanted="it has no captions")
    except DataError as error:
        _LOG.warning("%s", error)
        unreadable.append(str(error))
        return []
    if is_xmp:
        return _parse_xmp(text, path, image)[:xmp_texts]
    return [line.strip() for line in text.split("\n") if line.strip()]


def _parse_xmp(text: str, path: Path, image: Path) -> list[str]:
    """The captions in what programs write for many purposes."""
    packets = list(read_packets(text.encode()))
    if text and not packets:
        _LOG.warning("%s: not XMP that can be read", path)
    if any(sidecar_extension(one) not in ("", image.suffix[1:].lower()) for one in packets):
        return []
    defaults = (
        next((text for one in packets for text in items_of(one, name)), "")
        for name in (DESCRIPTION, ALT_TEXT)
    )
    captions = (" ".join(text.split()) for text in defaults)
    return list(dict.fromkeys(caption for caption in captions if not is_of_camera(caption)))
