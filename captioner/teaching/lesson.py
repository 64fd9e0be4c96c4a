"""Which photos a model is taught, and which tell what becomes of the others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

from captioner.errors import DataError, clip
from captioner.references import CaptionedImage, read_references
from captioner.references.listing import list_images
from captioner.training.config.options import TrainOptions
from captioner.words.tokens import tokenize

HELD_OUT_FROM, HELD_OUT = 50, 0.1
"""With so many corrections, this share of them is not taught, but tells what others like them gain."""
MOST_OTHERS = 120
"""Photos without corrections that are used, evenly spaced; more if there are more corrections."""
MOST_TAUGHT = 300
"""With more corrections, `captioner train` learns more about other photos."""
_TAUGHT, _OTHERS = "taught.jsonl", "others.jsonl"
_BATCH = 16


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

    @classmethod
    def read(cls, folder: Path, corrections: Path) -> Lesson:
        """`corrections` in any format of `captioner.references`; rejected captions count as none. Raises
        `DataError` where there is nothing to teach."""
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        corrected = read_references(corrections)
        places: dict[Path, str] = {}
        for image in corrected:
            if (other := places.setdefault(Path(image.name), image.name)) != image.name:
                raise DataError(f"{corrections}: {other} and {image.name} are one photo")
            if wordless := next((text for text in image.captions if not tokenize(text)), None):
                raise DataError(f"{corrections}: the caption of {image.name} has no words: {clip(wordless)}")
        names = {normalize("NFC", image.name.replace("\\", "/")) for image in corrected}
        others = [
            name
            for name in list_images(folder)
            if names.isdisjoint((normalize("NFC", name), Path(name).name))
        ]
        step = max(1, math.ceil(len(others) / max(MOST_OTHERS, len(corrected))))
        held = corrected[:: round(1 / HELD_OUT)] if len(corrected) >= HELD_OUT_FROM else []
        return cls(
            folder,
            _captions(image for image in corrected if image not in held),
            _captions(held),
            others[::step],
        )

    def write(self, place: Path, captions: Mapping[str, str]) -> None:
        """Write the files that `options` names; `captions` are the model's own, of the other photos."""
        place.mkdir(parents=True, exist_ok=True)
        _write(place / _TAUGHT, self.taught)
        _write(place / _OTHERS, {name: (captions[name],) for name in self.others if name in captions})

    def options(self, name: str, start: str) -> TrainOptions:
        """The run that teaches `start`, the path of a model, in the folder that `write` has written to."""
        images = [str(self.folder.resolve())]
        data: list[dict[str, Any]] = [{"name": "corrections", "captions": _TAUGHT, "images": images}]
        if self.others:
            data.append({"name": "others", "captions": _OTHERS, "images": images, "retained": True})
        stage = {"name": "teach", "batch_captions": _BATCH}
        return TrainOptions.from_dict({"name": name, "start": start, "data": data, "stages": [stage]})


def _captions(images: Iterable[CaptionedImage]) -> dict[str, tuple[str, ...]]:
    return {image.name: image.captions for image in images}


def _write(path: Path, captions: Mapping[str, Sequence[str]]) -> None:
    lines = [{"image": name, "caption": text} for name, own in captions.items() for text in own]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
