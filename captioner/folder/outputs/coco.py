"""The results format of COCO captions: `[{"image_id": 42, "caption": "..."}, ...]`, for pycocotools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from captioner.errors import OptionsError
from captioner.folder.outputs.options import OutputOptions
from captioner.folder.outputs.place import Place, beside, claim
from captioner.folder.outputs.table import Table
from captioner.folder.state import State
from captioner.folder.transform import Record
from captioner.readable_json import dump_json
from captioner.references import image_key
from captioner.surrogates import to_unicode

MAX_ID = 2**53 - 1
"""The largest whole number that every reader of JSON holds exactly."""


class CocoOutput(Table):
    """Images without a caption are left out of the file; stderr and the exit status report them.

    Ids are those of `OutputOptions.image_ids`, or the numbers at the end of the names. If one name has none,
    the images are counted from 1 in order, and the file `OUT.images.json` beside the output lists the ids.
    """

    def __init__(self, path: Path, options: OutputOptions) -> None:
        super().__init__(path, options)
        self.map_path = beside(path, ".images.json")
        self._by_order = options.ids_by_order
        self._map: Place | None = None

    def begin(self, state: State) -> None:
        # What is wrong with a number is better known before the work than after.
        if self._options.image_ids is None:
            self._by_order |= any(_number(name) is None for name in state.names(readable=True))
        if self._by_order:
            self._map = claim(self.map_path, state, "claimed map")
        else:
            self._check(state)
        super().begin(state)

    def _check(self, state: State) -> None:
        seen: dict[int, str] = {}
        for name in state.names(readable=True):
            image_id = self._image_id(name)
            if image_id in seen:
                message = f"{seen[image_id]} and {name} have the same COCO id {image_id}"
                raise OptionsError(f"{message}; {_ADVICE}", "coco_ids")
            seen[image_id] = name

    def finish(self, state: State) -> None:
        if self._map is not None:
            images = ({"id": number, **_file(name)} for number, name in enumerate(state.names(), 1))
            with self._map.replacing() as file:
                _write_list(file, images, b'{"images": [', b"]}\n")
        super().finish(state)

    def close(self) -> None:
        super().close()
        if self._map is not None:
            self._map.close()

    def write(self, file: IO[bytes], records: Iterator[Record]) -> None:
        captions = (
            {
                "image_id": number if self._by_order else self._image_id(record["image"]),
                "caption": to_unicode(record)["caption"],
            }
            for number, record in enumerate(records, 1)
            if "caption" in record
        )
        _write_list(file, captions, b"[", b"]\n")

    def _image_id(self, name: str) -> int:
        ids = self._options.image_ids
        if ids is None:
            return _own_id(name)
        key = name if name in ids else image_key(name)
        if key not in ids:
            raise OptionsError(f"{name} is not in the file of --coco-ids", "coco_ids")
        if (image_id := ids[key]) is None:
            message = f"the file of --coco-ids has several images {key}, but no {name}"
            raise OptionsError(message, "coco_ids")
        return image_id


_ADVICE = "--coco-ids order counts the images instead, --coco-ids FILE gives the ids of their names"


def _own_id(name: str) -> int:
    """As COCO names its own files: COCO_val2014_000000391895.jpg."""
    number = _number(name)
    assert number is not None
    if len(number.lstrip("0")) > len(str(MAX_ID)) or int(number) > MAX_ID:
        raise OptionsError(f"{name} ends with {number}, too large for a COCO id; {_ADVICE}", "coco_ids")
    return int(number)


def _number(name: str) -> str | None:
    found = re.search(r"(?<![0-9])[0-9]+$", PurePosixPath(name).stem)
    return None if found is None else found.group()


def _file(name: str) -> dict[str, object]:
    """The name as in COCO's lists of images."""
    record = to_unicode({"image": name})
    return {"file_name": record.pop("image"), **record}


def _write_list(file: IO[bytes], items: Iterator[dict[str, object]], start: bytes, end: bytes) -> None:
    separator = start + b"\n"
    for item in items:
        file.write(separator + dump_json(item).encode())
        separator = b",\n"
    file.write(start + end if separator == start + b"\n" else b"\n" + end)
