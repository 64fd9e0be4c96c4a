"""One photo of a gallery: turns a record into an index row, a thumbnail and a view."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from captioner.errors import CaptionerError, DataError, ImageUnreadableError
from captioner.images.limits import ImageLimits
from captioner.images.opening import open_image
from captioner.overlay.payload import encode_photo, make_payload
from captioner.overlay.scene import OverlayOptions, show_word
from captioner.printable import clean
from captioner.results import Alternative, Caption, Word
from captioner.retrieval.duplicates import fingerprint

THUMBNAIL_SIDE, THUMBNAIL_QUALITY = 400, 76
PHOTO_SIDE, PHOTO_QUALITY = 1280, 80
LINKABLE = {".avif", ".gif", ".jpeg", ".jpg", ".png", ".webp"}
"""Suffixes of files that browsers display, upright."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The gallery entry of one record."""

    file: str
    """The name of the photo in the record."""
    caption: str = ""
    confidence: float | None = None
    """Calibrated confidence; None if the model has no calibration."""
    mean_probability: float | None = None
    """Mean probability of the words and the end token: the sort key."""
    error: str | None = None
    thumbnail: bytes = b""
    photo: bytes | None = None
    """None if the view links to the original."""
    view: dict[str, Any] | None = None
    fingerprint: int = 0
    """As `captioner.retrieval.duplicates` has it; 0 for none."""

    @property
    def name(self) -> str:
        """The name that is shown."""
        return clean(self.file) or "(no name)"

    def index_row(self) -> list[Any]:
        """The row of this entry in the index, to which the number of a group of photos that look alike may be
        added."""
        file = None if self.file == self.name else self.file
        return [self.name, self.caption, self.confidence, self.error, self.mean_probability, file]


def make_entry(
    record: Mapping[str, Any], image_root: Path, link_from: Path | None, limits: ImageLimits
) -> Entry:
    """Read one record and its photo. `link_from` is the folder of the page if the view links to the
    original. Any problem with the record or the photo becomes the error of the entry."""
    file = str(record.get("image", ""))
    if "error" in record:
        return Entry(file, error=_error_message(record["error"]))
    try:
        caption = _read_caption(record)
        path = _find_photo(file, image_root)
        photo = open_image(path, limits, PHOTO_SIDE)
        with_maps = [word for word in caption.words if word.attention is not None]
        words = tuple(show_word(word, number) for number, word in enumerate(with_maps, 1))
    except CaptionerError as error:
        return Entry(file, error=clean(str(error)))
    view = make_payload(caption, words, photo.size, OverlayOptions())
    if "log_prob" not in record:  # a person wrote the caption
        view |= {"logProb": None, "meanProbability": None}
    probability = view["meanProbability"]
    links = link_from is not None and path.suffix.lower() in LINKABLE
    if links:
        view["url"] = quote(os.path.relpath(path, link_from).replace(os.sep, "/"), errors="surrogateescape")
    return Entry(
        file=file,
        caption=clean(caption.text),
        confidence=view["confidence"],
        mean_probability=None if probability is None else round(probability, 4),
        thumbnail=encode_photo(photo, THUMBNAIL_SIDE, THUMBNAIL_QUALITY),
        photo=None if links else encode_photo(photo, PHOTO_SIDE, PHOTO_QUALITY),
        view=view,
        fingerprint=fingerprint(photo),
    )


def _error_message(error: Any) -> str:
    message = error.get("message") if isinstance(error, Mapping) else error
    return clean(str(message or "could not be captioned"))


def _read_caption(record: Mapping[str, Any]) -> Caption:
    try:
        caption = Caption.from_dict(record)
        return Caption(
            text=str(caption.text),
            log_prob=float(caption.log_prob),
            words=tuple(_checked(word) for word in caption.words),
            alternatives=tuple(Alternative(str(a.text), float(a.log_prob)) for a in caption.alternatives),
            model=str(caption.model),
            confidence=None if caption.confidence is None else float(caption.confidence),
        )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError("the record is not a caption of the form that captioner writes") from error


def _checked(word: Word) -> Word:
    sentinel = None if word.sentinel is None else float(word.sentinel)
    return Word(str(word.text), float(word.log_prob), word.attention, sentinel)


def _find_photo(name: str, image_root: Path) -> Path:
    # A list of captions from somebody else must not pull files from outside the folder into the page.
    # Links inside the folder are its owner's own and are followed.
    root = image_root.resolve()
    path = Path(os.path.normpath(root / name))
    if path == root or not path.is_relative_to(root):
        raise ImageUnreadableError("the photo is outside the folder of images")
    # Opening a pipe would wait for a writer. Path.exists fails for names that are too long.
    if os.path.exists(path) and not os.path.isfile(path):  # noqa: PTH110 PTH113
        raise ImageUnreadableError("not a regular file")
    return path
