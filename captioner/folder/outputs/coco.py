"""The results format of COCO captions: `[{"image_id": 42, "caption": "..."}, ...]`, for pycocotools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO

from captioner.errors import OptionsError
from captioner.folder.outputs.options import Record
from captioner.folder.outputs.table import Table
from captioner.folder.state import State
from captioner.references import image_key


class CocoOutput(Table):
    """Images without a caption are left out of the file; stderr and the exit status report them."""

    name = "coco"

    def begin(self, state: State) -> None:
        seen: dict[int, str] = {}
        # What is wrong with a number is better known before the work than after.
        for name in state.names(readable=True):
            image_id = self._image_id(name)
            if image_id in seen:
                message = f"{seen[image_id]} and {name} have the same COCO id {image_id}; give --coco-ids"
                raise OptionsError(f"{message} with their names", "coco_ids")
            seen[image_id] = name
        super().begin(state)

    def write(self, file: IO[bytes], records: Iterator[Record]) -> None:
        separator = b"[\n"
        for record in records:
            if "caption" in record:
                line = json.dumps({"image_id": self._image_id(record["image"]), "caption": record["caption"]})
                file.write(separator + line.encode("ascii"))
                separator = b",\n"
        file.write(b"[]\n" if separator == b"[\n" else b"\n]\n")

    def _image_id(self, name: str) -> int:
        ids = self._options.image_ids
        if ids is not None:
            key = name if name in ids else image_key(name)
            if key not in ids:
                raise OptionsError(f"{name} is not in the file of --coco-ids", "coco_ids")
            if (image_id := ids[key]) is None:
                message = f"the file of --coco-ids has several images {key}, but no {name}"
                raise OptionsError(message, "coco_ids")
            return image_id
        # As COCO names its own files: COCO_val2014_000000391895.jpg.
        number = re.search(r"\d+$", PurePosixPath(name).stem)
        if number is None:
            raise OptionsError(f"{name} does not end with a number, its COCO id; give --coco-ids", "coco_ids")
        return int(number.group())
