"""Captions of COCO, and of Karpathy's splits of it and of Flickr.

- COCO captions JSON: `{"images": [{"id", "file_name"}], "annotations": [{"image_id", "caption"}]}`;
- Karpathy JSON: `{"images": [{"filename", "split", "sentences": [{"raw"}]}]}`, with `filepath` (a folder)
  and `objects` where the file has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from captioner.errors import DataError
from captioner.references.bounded import TEXT_FORMATS, read_text
from captioner.references.image import CaptionedImage
from captioner.references.json_text import parse_json
from captioner.references.tables import parse_records, plain_records

_HINTS = {
    "caption": "; captions of COCO are in captions_*.json",
    "sentences": "; words instead of captions are read with score --labels, and as labels = in training",
}
"""What is said of files that lack a key, by that."""


def parse_coco_or_karpathy(path: Path, text: str) -> list[CaptionedImage]:
    """The images of a file in one of the two formats, or of a plain list or table of captions. Raises
    `DataError`."""
    document = parse_json(text, path)
    if (records := plain_records(path, document)) is not None:
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
        raise DataError(f'{path}: no list "images"; {TEXT_FORMATS}')
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
    return tuple(value.strip() for value in values if value is not None)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def read_image_ids(path: Path) -> list[tuple[str, int]]:
    """The names and COCO ids of the images of a COCO or Karpathy file, which need no captions (as COCO's own
    files of test images). Raises `DataError` for a file without ids, a name with two and an id with two."""
    ids: dict[str, int] = {}
    names: dict[int, str] = {}
    for entry in _entries(
        path, parse_json(read_text(path, wanted="ids are read from JSON of COCO or Karpathy"), path)
    ):
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
