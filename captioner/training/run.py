"""What an objective is given: the run when its stage starts, and a step for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.nn.attention import drawn_cells
from captioner.nn.decoder import Tensors
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import StageOptions, TrainOptions
from captioner.training.data.batches import Batch, Group, make_groups
from captioner.training.data.examples import Example
from captioner.training.data.feature_cache import FeatureCache
from captioner.training.data.teacher_features import CachedNetwork, TeacherFeatures, build_features
from captioner.training.progress import Progress
from captioner.training.weights.start import Start


@dataclass(frozen=True)
class Run:
    """What an objective may use when its stage starts."""

    options: TrainOptions
    stage: StageOptions
    examples: Sequence[Example]
    """Training examples; batches refer to them by index."""
    vocabulary: Vocabulary
    model: CaptionModel
    data_root: Path
    cache: Path
    """The folder for what is computed once for each photo (`captioner.training.data.stored_arrays.fill`)."""
    device: torch.device
    progress: Progress
    features: FeatureCache
    """Outputs of the frozen segments for all examples."""

    def teacher_features(self, network: CachedNetwork, what: str) -> TeacherFeatures:
        """What a network sees in the training photos; what the cache lacks is computed, and told as features
        of the `what`. Raises as `build_features` does."""
        with self.progress.task(f"features of the {what}", len(self.examples), 0) as tell:
            return build_features(
                self.cache,
                network,
                self.examples,
                self.options.crops,
                lambda done, _total: tell(done, ""),
                self.device,
            )

    @cached_property
    def start(self) -> Start | None:
        """The model that the run starts from, if there is one. Raises `DataError` or `BundleError`."""
        return Start.read(self.options.start, self.data_root) if self.options.start else None

    @cached_property
    def caption_groups(self) -> list[Group]:
        """All captions of the training images."""
        return make_groups(self.examples, self.vocabulary, self.options.max_words)


class TeacherForced(NamedTuple):
    """The decoder's output for the captions of a batch."""

    logits: Tensor
    """(batch, captions, length, vocabulary)"""
    attention: Tensor
    """(batch, captions, length, cells)"""
    drawn: list[Tensor]
    """Log-probabilities of the cells that hard attention sampled (`drawn_cells`)."""


@dataclass
class Step:
    """A batch and the model's outputs for it. The decoder runs when an objective first needs it."""

    model: CaptionModel
    batch: Batch
    captions: Tensor
    """int64 (batch, captions, length), on the device, from the start token."""
    features: list[Tensor]
    """Output of the frozen segments, enlarged: float (batch, channels, rows, columns) of each, or
    [uint8 (batch, height, width, 3)], not disturbed."""
    photo_mask: Tensor | None
    """bool (batch, cells): the cells of the photo in a letterboxed one; None for all."""
    part: Tensor | None
    """float (batch, 2, 3): the part of the photo that is enlarged (`random_part`), or None."""
    outputs: list[Tensor]
    """Outputs of the backbone's segments: (batch, channels, rows, columns) each."""
    grid: Tensor
    """(batch, cells, features), with nothing hidden."""
    memory: Tensors
    """As from `Decoder.prepare` for the partly hidden grid; its "mask" are the remaining cells."""
    state: Tensors

    @property
    def tokens(self) -> Tensor:
        """Inputs of the decoder: int64 (batch, captions, length)."""
        return self.captions[:, :, :-1]

    @property
    def targets(self) -> Tensor:
        """The words to predict: int64 (batch, captions, length), padded."""
        return self.captions[:, :, 1:]

    @cached_property
    def forced(self) -> TeacherForced:
        with drawn_cells(self.model.decoder) as drawn:
            logits, attention = self.model.decoder(self.tokens, self.memory, self.state)
        return TeacherForced(logits, attention, list(drawn))

    @property
    def logits(self) -> Tensor:
        return self.forced.logits

    @property
    def attention(self) -> Tensor:
        return self.forced.attention
