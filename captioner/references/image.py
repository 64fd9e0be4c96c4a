"""An image and what people say of it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class CaptionedImage:
    """One image with its human captions, or with words for what it shows."""

    name: str
    """File name, below `filepath` where a Karpathy file gives one."""
    captions: tuple[str, ...]
    """Captions as written, none empty; no captions for images that have words."""
    split: str
    """The split; empty if the file does not name one."""
    objects: tuple[str, ...] = ()
    """Categories of objects in the image, if the file lists them."""
    image_id: int | None = None
    """COCO image id, if the file has one."""
    words: tuple[str, ...] = ()
    """Words for what a labelled image shows, most specific first."""
    listed: bool = field(default=False, compare=False)
    """Whether its captions are of a list in which a person may have changed those of a model: the ones that
    the model says are no corrections."""

    @property
    def key(self) -> str:
        """Key for matching captions: the file name without folder and extension."""
        return image_key(self.name)


def image_key(name: str) -> str:
    """The file name in a path without its extension, which survives conversion and moving of photos, with
    either kind of slash, its accents composed: macOS and zip files have them decomposed."""
    last = PurePath(unicodedata.normalize("NFC", name).replace("\\", "/")).name
    return last.rpartition(".")[0] or last
