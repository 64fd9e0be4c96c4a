"""Reads captions to score, and matches them with their references.

- JSON lines, CSV or Parquet, as `captioner batch` writes them: `{"image": …, "caption": …}`; lines of failed
  images, which have an `error`, are no captions;
- COCO results: `[{"image_id": …, "caption": …}]`, where the id is COCO's number or a file name;
- a table of captions by name: `{"a.jpg": "a dog"}`;
- a folder of photos with text or XMP files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from captioner.errors import DataError
from captioner.references import CaptionedImage, NoCaptionsError, check_divided, image_key, read_text
from captioner.references.entities import unescape_entities
from captioner.references.json_text import json_lines, parse_json
from captioner.references.parquet import parquet_rows
from captioner.references.sidecars import read_sidecars
from captioner.references.tables import (
    CAPTION_COLUMNS,
    IMAGE_COLUMNS,
    csv_rows,
    first_of,
    is_csv,
    plain_records,
)
from captioner.surrogates import image_of

_FORMATS = (
    "captions to score are read from JSON lines or CSV of captioner batch, its Parquet (.parquet), COCO "
    "results, or a folder of photos with text or XMP files"
)


def references_by_image(images: Sequence[CaptionedImage]) -> dict[str, tuple[str, ...]]:
    """The references by `CaptionedImage.key`. Raises `DataError` when two images share one."""
    check_keys(images)
    return {image.key: image.captions for image in images}


def check_keys(images: Sequence[CaptionedImage]) -> None:
    """Raise `DataError` when two images share a `CaptionedImage.key`."""
    seen = set()
    for image in images:
        if image.key in seen:
            raise DataError(f"two images are called {image.key}; captions are matched by file name")
        seen.add(image.key)


def objects_by_image(images: Sequence[CaptionedImage]) -> dict[str, tuple[str, ...]] | None:
    """The objects by `CaptionedImage.key`; None if the references list no objects. If others have objects, an
    image without any shows none."""
    if not any(image.objects for image in images):
        return None
    return {image.key: image.objects for image in images}


def read_captions(path: str | Path, images: Sequence[CaptionedImage]) -> dict[str, str]:
    """The captions of a file by `CaptionedImage.key`; those of other images than `images` too, where their
    names are known. Raises `DataError` when the file is malformed or has two captions for one of `images`."""
    path = Path(path)
    records = _folder_records(path) if path.is_dir() else _file_records(path)
    keys, wanted = keys_by_number(images), {image.key for image in images}
    captions: dict[str, str] = {}
    for place, record in records:
        if isinstance(record, dict) and "error" in record:
            continue
        key, caption = _parse(record, keys, place)
        if key in captions and key in wanted:
            raise DataError(f"{place}: a second caption of {key}")
        captions.setdefault(key, unescape_entities(caption))  # as those of references are
    check_divided(path, captions.values())
    return captions


def _folder_records(folder: Path) -> Iterator[tuple[str, Any]]:
    try:
        images = read_sidecars(folder, xmp_texts=1)
    except NoCaptionsError:
        raise DataError(f"{folder}: a folder; no photo in it has a text file or XMP; {_FORMATS}") from None
    for image in images:
        for caption in image.captions:
            yield f"{folder}, {image.name}", {"image": image.name, "caption": caption}


def _file_records(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix.lower() == ".parquet":
        return _parquet_records(path)
    text = read_text(path, wanted=_FORMATS)
    return _csv_records(path, text) if is_csv(path, text) else _json_records(path, text)


def _csv_records(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    for number, row in csv_rows(path, text):
        if not row.get("error_code"):
            yield f"{path}, line {number}", row


def _parquet_records(path: Path) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(parquet_rows(path), 1):
        if not row.get("error_code"):
            yield f"{path}, row {number}", row


def _json_records(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    is_list = text.lstrip().startswith("[")
    try:
        document = parse_json(text, path)
    except DataError:
        if is_list:
            raise
        document = None  # several lines
    records = plain_records(path, document)
    yield from json_lines(text, path) if records is None else records


def _parse(record: Any, keys: dict[int, str], place: str) -> tuple[str, str]:
    if not isinstance(record, dict):
        raise DataError(f"{place}: not an object")
    image = image_of({"image": first_of(record, ("image_id", *IMAGE_COLUMNS)), **record})
    caption = first_of(record, CAPTION_COLUMNS)
    if not isinstance(caption, str) or not isinstance(image, (str, int)):
        raise DataError(f'{place}: no "caption", or no "image" or "image_id"')
    return keys.get(image, str(image)) if isinstance(image, int) else image_key(image), caption


def keys_by_number(images: Sequence[CaptionedImage]) -> dict[int, str]:
    """COCO's number of each image, from its entry or the end of its name (COCO_val2014_000000000042.jpg)."""
    keys = {}
    for image in images:
        number = re.search(r"(?<!\d)\d{1,18}$", image.key)
        if image.image_id is not None:
            keys[image.image_id] = image.key
        elif number:
            keys[int(number[0])] = image.key
    return keys
