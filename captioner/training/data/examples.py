"""The images of a run's data sets, with their captions or words."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from captioner.configuration import below
from captioner.errors import DataError
from captioner.references import (
    CaptionedImage,
    read_classes,
    read_label_file,
    read_references,
    select_split,
)
from captioner.references.files import ImageFiles
from captioner.surrogates import name_bytes
from captioner.training.config.train_options import SourceOptions


@dataclass(frozen=True)
class Example:
    """One image with its captions."""

    image: CaptionedImage
    source: str
    repeat: int
    files: ImageFiles
    retained: bool = False
    """Whether its captions are the model's own (`SourceOptions.retained`)."""

    @property
    def key(self) -> str:
        return f"{self.source}/{self.image.name}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the image file in hexadecimal. Raises `DataError`."""
        return hashlib.sha256(self.files.read(self.image.name)).hexdigest()


def load_examples(sources: Sequence[SourceOptions], root: Path, split: str) -> list[Example]:
    """The images of all sources. `split` is "train" or "val". Raises `DataError`."""
    examples = []
    for source in sources:
        images = _of_split(source, _read(source, root), split)
        files = ImageFiles([_existing(root, place) for place in source.images])
        repeat = source.repeat if split == "train" else 1
        examples += [Example(image, source.name, repeat, files, source.retained) for image in images]
    return examples


def check_names(examples: Iterable[Example]) -> None:
    """Raise `DataError` if two names of a data set lead to one photo."""
    sources: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        sources[example.source].append(example)
    for name, own in sources.items():
        try:
            own[0].files.places(example.image.name for example in own)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None


def _existing(root: Path, name: str) -> Path:
    """A file or folder of the data, or the zip file of the same name, in which form many data sets are
    downloaded. Raises `DataError`."""
    place = below(root, name)
    archive = Path(f"{place}.zip")
    if found := next((path for path in (place, archive) if path.exists()), None):
        return found
    where = "" if place == Path(name) else f"; {name} is looked for in {root}: give its folder as --data-root"
    raise DataError(f"there is no {place}{where}")


def _read(source: SourceOptions, root: Path) -> list[CaptionedImage]:
    if source.captions:
        return read_references(_existing(root, source.captions))
    if source.labels:
        return read_label_file(_existing(root, source.labels))
    return read_classes([_existing(root, place) for place in source.images])


def _of_split(source: SourceOptions, images: list[CaptionedImage], split: str) -> list[CaptionedImage]:
    if split == "val" and not source.val_fraction:
        return _select(source, images, source.val or "none", without_splits=("val", "none"))
    learnt = _select(source, images, source.train or "all", without_splits=("train", "all"))
    if split == "val":
        return [image for image in learnt if _share(image.name) < source.val_fraction]
    return [image for image in learnt if _share(image.name) >= source.val_fraction]


def _select(
    source: SourceOptions, images: list[CaptionedImage], wanted: str, without_splits: tuple[str, str]
) -> list[CaptionedImage]:
    """`without_splits`: a split that data without any need not have, and what it then means."""
    if not any(image.split for image in images) and wanted == without_splits[0]:
        wanted = without_splits[1]
    if wanted in ("all", "none"):
        return images if wanted == "all" else []
    return select_split(Path(source.captions or source.labels or source.images[0]), images, wanted)


def _share(name: str) -> float:
    """A number from 0 to 1 for a file name, evenly spread."""
    return int.from_bytes(hashlib.sha256(name_bytes(Path(name).name)).digest()[:8], "big") / 2**64
