"""Which photos a model is taught, and which tell what becomes of the others."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioner.errors import DataError, clip
from captioner.readable_json import dump_json
from captioner.references import CaptionedImage, read_references
from captioner.references.files import ImageFiles
from captioner.references.listing import list_images
from captioner.training.config.train_options import DAMAGED_SHARE, TrainOptions
from captioner.training.data.left_out import LeftOut
from captioner.words.tokens import tokenize

_LOG = logging.getLogger(__name__)
HELD_OUT_FROM, HELD_OUT = 50, 0.1
"""With so many corrections, this share of them is not taught, but tells what others like them gain."""
MOST_OTHERS = 120
"""Photos without corrections that are used, evenly spaced; more if there are more corrections."""
MOST_TAUGHT = 300
"""With more corrections, `captioner train` learns more about other photos."""
_TAUGHT, _OTHERS = "taught.jsonl", "others.jsonl"
_BATCH = 16

Own = Callable[[Sequence[str]], Mapping[str, str]]
"""The model's captions of photos of the folder, by photo, of those that can be read."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Photos of a folder by what teaching is to do with them; names are relative to the folder."""

    folder: Path
    taught: Mapping[str, Sequence[str]]
    """Captions of people by photo."""
    held_out: Mapping[str, Sequence[str]]
    """Such captions that are not taught."""
    others: Sequence[str]
    """Photos without corrections."""
    said: Mapping[str, str] = field(default_factory=dict)
    """The model's own captions by photo, where reading the lesson took them."""

    @classmethod
    def read(cls, folder: Path, corrections: Path, own: Own | None = None) -> Lesson:
        """`corrections` in any format of `captioner.references`; rejected captions count as none, and photos
        that are not there are left out, if they are few. With `own`, neither are those `listed` captions
        corrections that the model says (`CaptionedImage`). Raises `DataError` where there is nothing to
        teach."""
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        corrected = read_references(corrections)
        for image in corrected:
            if wordless := next((text for text in image.captions if not tokenize(text)), None):
                raise DataError(f"{corrections}: the caption of {image.name} has no words: {clip(wordless)}")
        files, photos = ImageFiles([folder]), list_images(folder)
        places, faults = files.places(image.name for image in corrected)
        most = f"{DAMAGED_SHARE:.0%}: take the corrections of photos that are gone out of {corrections}"
        left_out = LeftOut(len(corrected) + len(photos), DAMAGED_SHARE, _LOG.warning, most)
        left_out.add(f"{name}: {fault}" for name, fault in faults.items())
        left_out.check()
        corrected = [image for image in corrected if image.name in places]
        if not corrected:
            raise DataError(
                f"none of the photos of {corrections} is in {folder}: {next(iter(faults.values()))}"
            )
        said: dict[str, str] = {}
        if own is not None and (listed := [image.name for image in corrected if image.listed]):
            said |= own(listed)
            corrected = _changed(corrections, corrected, said)
        given = {name: _file(Path(place)) for name, place in places.items()}
        taken = {given[image.name] for image in corrected}
        others = {name: file for name in photos if (file := _file(folder / name)) not in taken}
        known = {given[name]: text for name, text in said.items()}
        said |= {name: known[file] for name, file in others.items() if file in known}
        step = max(1, math.ceil(len(others) / max(MOST_OTHERS, len(corrected))))
        taught = {image.name: image.captions for image in corrected}
        held = [*taught][:: round(1 / HELD_OUT)] if len(taught) >= HELD_OUT_FROM else []
        held_out = {name: taught.pop(name) for name in held}
        return cls(folder, taught, held_out, [*others][::step], said)

    def write(self, place: Path, captions: Mapping[str, str]) -> None:
        """Write the files that `options` names; `captions` are the model's own, of all photos that can be
        read."""
        place.mkdir(parents=True, exist_ok=True)
        _write(place / _TAUGHT, {name: own for name, own in self.taught.items() if name in captions})
        _write(place / _OTHERS, {name: (captions[name],) for name in self.others if name in captions})

    def options(self, name: str, start: str) -> TrainOptions:
        """The run that teaches `start`, the path of a model, in the folder that `write` has written to."""
        images = [str(self.folder.resolve())]
        data: list[dict[str, Any]] = [{"name": "corrections", "captions": _TAUGHT, "images": images}]
        if self.others:
            data.append({"name": "others", "captions": _OTHERS, "images": images, "retained": True})
        stage = {"name": "teach", "batch_captions": _BATCH}
        return TrainOptions.from_dict({"name": name, "start": start, "data": data, "stages": [stage]})


def _changed(path: Path, images: list[CaptionedImage], own: Mapping[str, str]) -> list[CaptionedImage]:
    """The images without those of a list that have no other caption than the model's `own`. Raises
    `DataError` if none is left."""
    said = {name: tokenize(text) for name, text in own.items()}
    changed = [
        image
        for image in images
        if not image.listed or any(tokenize(text) != said.get(image.name) for text in image.captions)
    ]
    if not changed:
        raise DataError(f"{path}: all captions are the model's own: there is nothing to teach")
    if same := len(images) - len(changed):
        _LOG.warning("%s: %s of %s captions are the model's own: no corrections", path, same, len(images))
    return changed


def _file(path: Path) -> tuple[int, int]:
    """What is the same for all names of a file."""
    found = path.stat()
    return found.st_dev, found.st_ino


def _write(path: Path, captions: Mapping[str, Sequence[str]]) -> None:
    lines = [{"image": name, "caption": text} for name, own in captions.items() for text in own]
    path.write_text("".join(dump_json(line) + "\n" for line in lines), encoding="utf-8")
