"""Which photos a model is taught, which it is to keep its captions of, and how it is trained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

from captioner.errors import DataError
from captioner.model.bundle import Bundle
from captioner.references import CaptionedImage, read_references
from captioner.references.listing import list_images
from captioner.training.config.options import TrainOptions, read_model

HELD_OUT_FROM, HELD_OUT = 50, 0.1
"""With so many corrections, this share of them is not taught, but tells what others like them gain."""
MOST_OTHERS = 120
"""Photos without corrections that are used, evenly spaced."""
FEWEST_OTHERS = 8
"""With fewer, what teaching does to other photos is not known."""
_TAUGHT, _KEPT = "taught.jsonl", "kept.jsonl"


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
        names = {normalize("NFC", image.name.replace("\\", "/")) for image in corrected}
        others = [
            name
            for name in list_images(folder)
            if names.isdisjoint((normalize("NFC", name), Path(name).name))
        ]
        step = max(1, math.ceil(len(others) / MOST_OTHERS))
        held = corrected[:: round(1 / HELD_OUT)] if len(corrected) >= HELD_OUT_FROM else []
        return cls(
            folder,
            _captions(image for image in corrected if image not in held),
            _captions(held),
            others[::step],
        )

    @property
    def kept(self) -> Sequence[str]:
        """The other photos whose captions are kept."""
        return self.others[::2] if len(self.others) > 1 else ()

    @property
    def watched(self) -> Sequence[str]:
        """The other photos that tell what becomes of everything else."""
        return self.others[1::2]

    @property
    def epochs(self) -> int:
        """Fewer for more corrections: so often each must be seen."""
        return max(4, min(15, round(60 / math.sqrt(len(self.taught)))))

    def write(self, place: Path, captions: Mapping[str, str]) -> None:
        """Write the files that `options` names; `captions` are the model's own, of the other photos."""
        place.mkdir(parents=True, exist_ok=True)
        _write(place / _TAUGHT, self.taught)
        own = {name: (captions[name],) for name in self.others if name in captions}
        _write(place / _KEPT, {name: own[name] for name in self.kept if name in own})

    def options(self, name: str, start: str, checklist: bool) -> TrainOptions:
        """The run that teaches `start`, the path of a model, in the folder that `write` has written to;
        `checklist`: whether the model has one."""
        images = [str(self.folder.resolve())]
        data: list[dict[str, Any]] = [
            {"name": "corrections", "captions": _TAUGHT, "images": images, "train": "all", "val": "all"},
        ]
        objectives: dict[str, Any] = {
            "cross_entropy": {"as_searched": True, "label_smoothing": 0.0},
        }
        if checklist:
            objectives["bag_of_words"] = {"weight": 0.2}
        if len(self.kept):
            data.append(
                {
                    "name": "others",
                    "captions": _KEPT,
                    "images": images,
                    "train": "all",
                    "val": "all",
                    "retained": True,
                }
            )
            objectives["caption_retention"] = {"weight": 1.0, "samples": 4}
        stage = {
            "name": "teach",
            "epochs": self.epochs,
            "batch_captions": 8,
            "learning_rate": 3e-4,
            "objectives": objectives,
        }
        return TrainOptions.from_dict({"name": name, "start": start, "data": data, "stages": [stage]})


def has_checklist(bundle: Bundle) -> bool:
    """Whether a model has a checklist. Raises `DataError` for a bundle that does not say how it is built."""
    try:
        return read_model(bundle.manifest["training"]["model"]).bonus.checklist_weight > 0
    except (KeyError, TypeError):
        raise DataError(f"the bundle {bundle.name} does not say how its model is built") from None


def _captions(images: Iterable[CaptionedImage]) -> dict[str, tuple[str, ...]]:
    return {image.name: image.captions for image in images}


def _write(path: Path, captions: Mapping[str, Sequence[str]]) -> None:
    lines = [{"image": name, "caption": text} for name, own in captions.items() for text in own]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
