"""What a run trains, and on what: from its options to a model, and photos with their features."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import TrainOptions
from captioner.training.data.examples import Example, check_names, load_examples
from captioner.training.data.feature_cache import FeatureCache, build_cache
from captioner.training.data.frozen_part import FrozenPart
from captioner.training.data.left_out import LeftOut
from captioner.training.loop.plan import described, in_another_language, planned
from captioner.training.progress import Progress
from captioner.training.weights.build import build_model
from captioner.training.weights.start import Start

UNTAUGHT = (
    "is taken as it was before captions of photos or kinds of pictures were corrected, because training "
    "changes what these corrections rest on; captioner teach adds them again"
)
"""What a run says of a start that was taught."""


@dataclass(frozen=True)
class Prepared:
    """A model that is not trained yet, and its data."""

    options: TrainOptions
    """Nothing in them is left open."""
    model: CaptionModel
    vocabulary: Vocabulary
    added: tuple[str, ...]
    """The words of labels whose classes are new and not fitted yet."""
    confidence: Mapping[str, Any] | None
    """The calibration of the model that the run starts from."""
    train: Sequence[Example]
    val: Sequence[Example]
    left_out: LeftOut
    """The photos of both that are missing, to which those are added that turn out to be damaged."""

    def photos(
        self, cache: Path, device: torch.device, progress: Progress
    ) -> tuple[list[Example], FeatureCache, list[Example], FeatureCache]:
        """The examples to train on whose photos can be used, and their features; those to validate on, and
        theirs. What is missing in the folder `cache` is computed. Raises `DataError` if too few can be used.
        """
        self.model.eval()
        part = FrozenPart(
            encoder=self.model.encoder,
            name=self.options.model.encoder,
            segments=self.options.frozen_segments,
            image_size=self.options.model.image_size,
            letterbox=self.model.letterbox,
            crops=self.options.crops,
        )
        network = functools.cache(lambda: part.on(device))

        def features(of: FrozenPart, examples: Sequence[Example], what: str) -> FeatureCache:
            with progress.task(f"features of {what} images", len(examples), 0) as tell:
                return build_cache(cache, of, examples, device, lambda done, _: tell(done, ""), network)

        train = self.left_out.usable(self.train, features(part, self.train, "training"))
        as_they_are = dataclasses.replace(part, crops=0, mirrored=False)
        return *train, *self.left_out.usable(self.val, features(as_they_are, self.val, "validation"))


def prepare(options: TrainOptions, data_root: Path, device: torch.device, progress: Progress) -> Prepared:
    """Read the start and the data, whose paths are relative to `data_root`, and make the model on `device`.
    `progress` receives the notes for the user. Raises `DataError` for data that cannot be used."""
    # What the data say comes first: a model takes long to read and to make.
    train, val = (load_examples(options.data, data_root, split) for split in ("train", "val"))
    check_names([*train, *val])
    left_out = LeftOut(len(train) + len(val), options.damaged_share, progress.note)
    train, val = left_out.there(train), left_out.there(val)
    left_out.check()
    start, options = _read_start(options, data_root, progress)
    options = planned(options, train, start.search if start else None)
    about_data = described(options, train, val)
    if start and (warning := in_another_language(train, start.vocabulary)):
        about_data.append(warning)
    torch.manual_seed(options.seed)
    built = build_model(options, train, start, progress.note)
    for text in about_data:
        progress.note(text)
    confidence = start.confidence if start else None
    model = built.model.to(device)
    return Prepared(built.options, model, built.vocabulary, built.added, confidence, train, val, left_out)


def _read_start(
    options: TrainOptions, data_root: Path, progress: Progress
) -> tuple[Start | None, TrainOptions]:
    """What the run starts from, and the options with its architecture."""
    if options.start:
        start = Start.read(options.start, data_root)
        if start.lacks_corrections:
            progress.note(f"{options.start} {UNTAUGHT}")
        model = start.architecture(options.model, options.model_sets)
        return start, dataclasses.replace(options, model=model)
    if options.model.bonus.label_classes:
        raise DataError("[model.bonus] label_classes: the run chooses them; set [label_classes]")
    return None, options
