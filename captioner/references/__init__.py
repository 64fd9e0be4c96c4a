"""Images with the captions that people wrote for them, in the file formats in use.

- Karpathy JSON: `{"images": [{"filename", "split", "sentences": [{"raw"}]}]}`, with `filepath` (a folder)
  and `objects` where the file has them;
- COCO captions JSON: `{"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}`;
- Flickr8k tokens: lines of `NAME.jpg#0<TAB>caption`, the splits in list files of one image name a line;
- CSV with the columns `image` and `caption` (or other usual names), JSON lines with the same names
  (`captioner.references.tables`), such as the metadata of Hugging Face's image folders; a JSON list of such
  objects, or `{"a.jpg": "caption"}`;
- a folder of images with text files beside them, or with such metadata in it.

Images with words instead of captions are read by `captioner.references.labels`.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from captioner.errors import DataError
from captioner.printable import counted
from captioner.references.bounded import TEXT_FORMATS, read_text
from captioner.references.image import CaptionedImage, image_key
from captioner.references.json_text import parse_json
from captioner.references.labels import read_classes, read_labels
from captioner.references.tables import (
    NoCaptionsError,
    is_csv,
    parse_csv,
    parse_lines,
    parse_records,
    plain_records,
    read_sidecars,
)
from captioner.words.tokens import find_unspaced

__all__ = [
    "CaptionedImage",
    "NoCaptionsError",
    "image_key",
    "read_classes",
    "read_image_ids",
    "read_label_file",
    "read_references",
    "read_text",
    "select_split",
]

_LOG = logging.getLogger(__name__)
_HINTS = {
    "caption": "; captions of COCO are in captions_*.json",
    "sentences": "; words instead of captions are read with score --labels, and as labels = in training",
}
"""What is said of files that lack a key, by that."""
_METADATA = ("metadata.jsonl", "metadata.csv")
"""Files with the captions of a folder of images, as Hugging Face's `datasets` reads them."""


def read_references(
    path: str | Path,
    split: str | None = None,
    *,
    split_lists: Mapping[str, str | Path] | None = None,
    divided: bool = True,
) -> list[CaptionedImage]:
    """The images of `path` in the order of the file, its format detected.

    `split` keeps the images of one split, or of several joined by `+` ("train+restval"). `split_lists`
    maps the names of splits to list files (`Flickr_8k.trainImages.txt`) for formats that hold none.
    Blank captions and images without a caption are left out. Raises `DataError` for anything that cannot be
    read, is malformed or repeated, leaves no image, or, unless `divided` is False, has no spaces between
    words.
    """
    path = Path(path)
    images = _captioned(path, _read_folder(path) if path.is_dir() else _parse(path, read_text(path)))
    if divided:
        _check_divided(path, images)
    if split_lists:
        images = _assign_splits(images, split_lists)
    if split is not None:
        images = select_split(path, images, split)
    return images


def read_label_file(path: Path) -> list[CaptionedImage]:
    """The labelled images of a file. Raises `DataError`."""
    return read_labels(path, read_text(path))


def read_image_ids(path: Path) -> list[tuple[str, int]]:
    """The names and COCO ids of the images of a COCO or Karpathy file, which need no captions (as COCO's own
    files of test images). Raises `DataError` for a file without ids, a name with two and an id with two."""
    ids: dict[str, int] = {}
    names: dict[int, str] = {}
    for entry in _entries(path, parse_json(read_text(path), path)):
        try:
            image_id = _id(entry.get("cocoid", entry.get("id")))
            name = entry["file_name"].strip() if "file_name" in entry else _karpathy_name(entry)
        except KeyError:
            raise DataError(f"{path}: an entry has no file_name") from None
        except (TypeError, ValueError, AttributeError):
            raise DataError(f"{path}: an entry has a value of the wrong type") from None
        if not isinstance(image_id, int):
            continue
        if ids.setdefault(name, image_id) != image_id:
            raise DataError(f"{path}: {name} has two ids, {ids[name]} and {image_id}")
        try:
            _claim_id(names, image_id, name)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
    if not ids:
        raise DataError(f"{path}: no image has a COCO id")
    return list(ids.items())


def _read_folder(folder: Path) -> list[CaptionedImage]:
    for name in _METADATA:
        if (folder / name).is_file():
            return _parse(folder / name, read_text(folder / name))
    return read_sidecars(folder)


def _parse(path: Path, text: str) -> list[CaptionedImage]:
    if path.suffix.lower() in (".csv", ".tsv") or is_csv(text):
        return parse_csv(path, text)
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return parse_lines(path, text)
    return _parse_json(path, text) if text.lstrip()[:1] in ("{", "[") else _parse_tokens(path, text)


def _parse_json(path: Path, text: str) -> list[CaptionedImage]:
    document = parse_json(text, path)
    if (records := plain_records(document)) is not None:
        return parse_records(path, records)
    _entries(path, document)
    parse = _parse_coco if "annotations" in document else _parse_karpathy
    try:
        return parse(document)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except KeyError as error:
        raise DataError(f"{path}: an entry lacks {error}{_HINTS.get(error.args[0], '')}") from None
    except (TypeError, ValueError, AttributeError):
        raise DataError(f"{path}: an entry has a value of the wrong type") from None


def _entries(path: Path, document: Any) -> list[Any]:
    entries = document.get("images") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise DataError(f'{path}: no list "images"; captions are read from {TEXT_FORMATS}')
    return entries


def _karpathy_name(entry: Mapping[str, Any]) -> str:
    return (Path(entry.get("filepath", "")) / entry["filename"]).as_posix()


def _parse_karpathy(document: Mapping[str, Any]) -> list[CaptionedImage]:
    return [
        CaptionedImage(
            name=_karpathy_name(entry),
            captions=_strings(sentence["raw"] for sentence in entry["sentences"]),
            split=_split(entry),
            objects=_strings(entry.get("objects", ())),
            image_id=_number(entry.get("cocoid")),
        )
        for entry in document["images"]
    ]


def _split(entry: Mapping[str, Any]) -> str:
    split = entry["split"]
    if not isinstance(split, str | None):
        raise TypeError
    return split or ""


def _parse_coco(document: Mapping[str, Any]) -> list[CaptionedImage]:
    names: dict[Any, str] = {}
    for entry in document["images"]:
        _claim_id(names, _id(entry["id"]), entry["file_name"].strip())
    captions: dict[Any, list[str]] = {image_id: [] for image_id in names}
    for annotation in document["annotations"]:
        image_id = _id(annotation["image_id"])
        if image_id not in captions:
            raise DataError(f"a caption is of image {image_id}, which is not listed")
        captions[image_id].append(annotation["caption"])
    return [
        CaptionedImage(
            name=entry["file_name"].strip(),
            captions=_strings(captions[_id(entry["id"])]),
            split="",
            image_id=_number(_id(entry["id"])),
        )
        for entry in document["images"]
    ]


def _claim_id(names: dict[Any, str], image_id: Any, name: str) -> None:
    """Note the image with this id. Raises `DataError` if another has it."""
    if names.setdefault(image_id, name) != name:
        raise DataError(f"{names[image_id]} and {name} have the same id, {image_id}")


def _id(value: Any) -> Any:
    """Some programs write numbers as strings."""
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) else value


def _strings(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(value.strip() for value in values)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _parse_tokens(path: Path, text: str) -> list[CaptionedImage]:
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        key, tab, caption = line.partition("\t")
        name, mark, _ = key.rpartition("#")
        if not (tab and mark and name):
            raise DataError(f"{path}, line {number}: not NAME#NUMBER<TAB>caption")
        captions.setdefault(name, []).append(caption.strip())
    return [CaptionedImage(name, tuple(texts), "") for name, texts in captions.items()]


def _captioned(path: Path, images: list[CaptionedImage]) -> list[CaptionedImage]:
    """The images with their captions that are not blank. Raises `DataError`."""
    found = []
    seen: set[str] = set()
    for image in images:
        if image.name in seen:
            raise DataError(f"{path}: {image.name} occurs twice")
        seen.add(image.name)
        if captions := tuple(caption for caption in image.captions if caption):
            found.append(dataclasses.replace(image, captions=captions))
    if not found:
        raise DataError(f"{path}: no image with a caption")
    if len(found) < len(images):
        _LOG.warning("%s: %s of %s images have no caption", path, len(images) - len(found), len(images))
    return found


def _check_divided(path: Path, images: list[CaptionedImage]) -> None:
    unspaced = find_unspaced(caption for image in images for caption in image.captions)
    if unspaced is not None:
        raise DataError(
            f"{path}: there are no spaces between the words of {unspaced!r}; separate the words with spaces, "
            "with a program for the language (such as jieba, fugashi or pythainlp)"
        )


def _assign_splits(
    images: list[CaptionedImage], split_lists: Mapping[str, str | Path]
) -> list[CaptionedImage]:
    splits = {
        name.strip(): split
        for split, path in split_lists.items()
        for name in read_text(Path(path)).split("\n")
        if name.strip()
    }
    missing = splits.keys() - {image.name for image in images}
    if missing:
        of_lists = f"{counted(len(missing), 'image')} of the split lists"
        raise DataError(f"{of_lists} without captions, such as {min(missing)}")
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
