"""Images with the captions that people wrote for them, in the file formats in use.

- JSON of COCO and of Karpathy's splits (`captioner.references.coco`);
- Flickr8k tokens (`captioner.references.flickr`), the splits in list files of one image name a line;
- CSV with the columns `image` and `caption` (or other usual names), JSON lines with the same names
  (`captioner.references.tables`), such as the metadata of Hugging Face's image folders; a JSON list of such
  objects, or `{"a.jpg": "caption"}`;
- a folder of images with text files beside them (`captioner.references.sidecars`), or with such metadata in
  it.

Images with words instead of captions are read by `captioner.references.labels`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from captioner.errors import DataError
from captioner.printable import counted
from captioner.references.bounded import read_text
from captioner.references.coco import parse_coco_or_karpathy, read_image_ids
from captioner.references.entities import unescape_entities
from captioner.references.flickr import parse_tokens
from captioner.references.image import CaptionedImage, image_key
from captioner.references.labels import LABELS, read_classes, read_labels
from captioner.references.sidecars import NoCaptionsError, read_sidecars
from captioner.references.tables import is_csv, parse_csv, parse_lines
from captioner.words.tokens import find_unspaced

__all__ = [
    "CaptionedImage",
    "NoCaptionsError",
    "check_divided",
    "image_key",
    "read_classes",
    "read_image_ids",
    "read_label_file",
    "read_references",
    "read_text",
    "select_split",
]

_LOG = logging.getLogger(__name__)
_METADATA = ("metadata.jsonl", "metadata.csv")
"""Files with the captions of a folder of images, as Hugging Face's `datasets` reads them."""


def read_references(
    path: str | Path,
    split: str | None = None,
    *,
    split_lists: Mapping[str, str | Path] | None = None,
    divided: bool = True,
    xmp: bool = False,
) -> list[CaptionedImage]:
    """The images of `path` in the order of the file, its format detected.

    `split` keeps the images of one split, or of several joined by `+` ("train+restval"). `split_lists`
    maps the names of splits to list files (`Flickr_8k.trainImages.txt`) for formats that hold none.
    `xmp` also reads XMP files beside photos, whose captions a machine may have written. Blank captions and
    images without a caption are left out. HTML entities become the characters that they stand for. Raises
    `DataError` for anything that cannot be read, is malformed or repeated, leaves no image, or, unless
    `divided` is False, has no spaces between words.
    """
    path = Path(path)
    images = _captioned(path, _read_folder(path, xmp=xmp) if path.is_dir() else _parse(path, read_text(path)))
    if divided:
        check_divided(path, (caption for image in images for caption in image.captions))
    if split_lists:
        images = _assign_splits(images, split_lists)
    if split is not None:
        images = select_split(path, images, split)
    return images


def read_label_file(path: Path) -> list[CaptionedImage]:
    """The labelled images of a file. Raises `DataError`."""
    return read_labels(path, read_text(path, wanted=LABELS))


def _read_folder(folder: Path, *, xmp: bool) -> list[CaptionedImage]:
    for name in _METADATA:
        if (folder / name).is_file():
            return _parse(folder / name, read_text(folder / name))
    return read_sidecars(folder, xmp_texts=2 if xmp else 0)


def _parse(path: Path, text: str) -> list[CaptionedImage]:
    if is_csv(path, text):
        return parse_csv(path, text)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return parse_lines(path, text)
    return parse_coco_or_karpathy(path, text) if text.lstrip()[:1] in ("{", "[") else parse_tokens(path, text)


def _captioned(path: Path, images: list[CaptionedImage]) -> list[CaptionedImage]:
    """The images with their captions that are not blank. Raises `DataError`."""
    found = []
    seen: set[str] = set()
    for image in images:
        if image.name in seen:
            raise DataError(f"{path}: {image.name} occurs twice")
        seen.add(image.name)
        if captions := tuple(filter(None, map(unescape_entities, image.captions))):
            found.append(dataclasses.replace(image, captions=captions))
    if not found:
        raise DataError(f"{path}: no image with a caption")
    if len(found) < len(images):
        _LOG.warning("%s: %s of %s images have no caption", path, len(images) - len(found), len(images))
    return found


def check_divided(path: Path, captions: Iterable[str]) -> None:
    """Raise `DataError` if the words of these captions are not written apart."""
    unspaced = find_unspaced(captions)
    if unspaced is not None:
        raise DataError(
            f"{path}: there are no spaces between the words of {unspaced!r}; separate the words with spaces, "
            "with a program for the language (such as jieba, fugashi or pythainlp)"
        )


def _assign_splits(
    images: list[CaptionedImage], split_lists: Mapping[str, str | Path]
) -> list[CaptionedImage]:
    splits: dict[str, str] = {}
    known = {image.name for image in images}
    for split, path in split_lists.items():
        text = read_text(Path(path), wanted="a list of a split has the name of an image on each line")
        names = [name.strip() for name in text.split("\n") if name.strip()]
        if not names:
            raise DataError(f"{path}: names no image")
        if missing := set(names) - known:
            of_lists = f"{counted(len(missing), 'image')} of the split lists"
            raise DataError(f"{path}: {of_lists} without captions, such as {min(missing)}")
        splits |= dict.fromkeys(names, split)
    return [dataclasses.replace(image, split=splits.get(image.name, image.split)) for image in images]


def select_split(path: Path, images: list[CaptionedImage], split: str) -> list[CaptionedImage]:
    """The images of one split, or of several joined by `+`. Raises `DataError` if one has no images."""
    known = {image.split for image in images}
    wanted = set(split.split("+"))
    unknown = wanted - known
    if unknown:
        have = ", ".join(sorted(known - {""})) or "none"
        same = {min(unknown).lower()} & {name.lower() for name in known}
        hint = " (capitals count: write it so, or change the file)" if same else ""
        raise DataError(f"{path}: no split {min(unknown)!r}; it has {have}{hint}")
    return [image for image in images if image.split in wanted]
