"""Photos with words instead of captions.

- A label file: `{"images": [{"filename", "split", "words": ["giant panda", "panda", "bear"]}]}`, the words
  from the most exact to the most general, `split` optional;
- folders named by class, `CLASS/photo.jpg`, as torchvision's ImageFolder has them, or `train/CLASS/photo.jpg`
  and `val/CLASS/photo.jpg`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from captioner.errors import DataError
from captioner.references.image import CaptionedImage
from captioner.references.json_text import parse_json
from captioner.references.listing import list_images
from captioner.words.tokens import tokenize

LABELS = 'labels are read from JSON: {"images": [{"filename": …, "words": […]}]}'
SPLITS = ("train", "val", "test")
_WORDNET_ID = re.compile(r"n\d{8}")


def read_labels(path: Path, text: str) -> list[CaptionedImage]:
    """The images of a label file, whose content is `text`. Raises `DataError`."""
    document = parse_json(text, path)
    try:
        entries = document["images"]
    except (KeyError, TypeError):
        raise DataError(f'{path}: no list "images"') from None
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path}: no images")
    images = [_labelled(path, entry) for entry in entries]
    names = [image.name for image in images]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{path}: {twice} occurs twice")
    return images


def _labelled(path: Path, entry: Any) -> CaptionedImage:
    match entry:
        case {"filename": str(name), "words": [*words]} if words and all(
            isinstance(word, str) and tokenize(_clean(word)) for word in words
        ):
            return CaptionedImage(name, (), str(entry.get("split") or ""), words=tuple(map(_clean, words)))
    raise DataError(f"{path}: an image needs a filename and a list of words, got {str(entry)[:80]}")


def read_classes(places: Sequence[Path]) -> list[CaptionedImage]:
    """The images in folders named by class. Raises `DataError`."""
    found = []
    for place in places:
        for name in list_images(place):
            *above, label = PurePosixPath(name).parent.parts or ("",)
            if not label:
                continue  # beside the folders
            if _WORDNET_ID.fullmatch(label):
                raise DataError(f"{place}: the folder {label} is named by a number, not by a word")
            if not tokenize(_clean(label)):
                raise DataError(f"{place}: the name of the folder {label} is not a word")
            split = above[-1] if above and above[-1] in SPLITS else ""
            found.append(CaptionedImage(name, (), split, words=(_clean(label),)))
    if not found:
        raise DataError(f"{', '.join(map(str, places))}: no folders of images that are named by class")
    return found


def _clean(word: str) -> str:
    return re.sub(r"[\s_]+", " ", word).strip().lower()
