"""The interface of all objectives: what a stage minimises is a weighted sum of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.training.cache import FeatureCache
from captioner.training.data import CAPTIONS, Example, Group, make_groups
from captioner.training.options import ObjectiveOptions, StageOptions, TrainOptions
from captioner.training.progress import Progress
from captioner.training.start import Start
from captioner.training.step import Step


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
    """The folder for what is computed once for each photo (`captioner.training.cache.fill`)."""
    device: torch.device
    progress: Progress
    features: FeatureCache
    """Outputs of the frozen segments for all examples."""

    @cached_property
    def start(self) -> Start | None:
        """The model that the run starts from, if there is one. Raises `DataError` or `BundleError`."""
        return Start.read(self.options.start, self.data_root) if self.options.start else None

    @cached_property
    def caption_groups(self) -> list[Group]:
        """All captions of the training images."""
        return make_groups(self.examples, self.vocabulary, self.options.max_words)


O = TypeVar("O", bound=ObjectiveOptions)  # noqa: E741


class Objective(nn.Module, ABC, Generic[O]):
    """One term of the loss of a stage.

    A module, so that it can have parameters and buffers of its own: they are trained with the model, saved in
    the checkpoint, carried to the next stage with the same objective, and left out of the exported model.
    """

    Options: ClassVar[type[Any]] = ObjectiveOptions
    batches: ClassVar[frozenset[str] | None] = frozenset({CAPTIONS})
    """Kinds of batches that it has a loss for (`captioner.training.data.Group.kind`); None for all."""

    def __init__(self, options: O, run: Run) -> None:
        """Compute or load what is needed before the first step. Raises `DataError` for a run without it."""
        super().__init__()
        self.options, self.run = options, run

    def groups(self, random: np.random.Generator) -> list[Group]:
        """The groups that an epoch needs for this objective; none if it accepts any batch. If several
        objectives need groups of one kind, the first provides them. `random` differs in each epoch."""
        return self.run.caption_groups if CAPTIONS in (self.batches or ()) else []

    def applies_to(self, kind: str) -> bool:
        return self.batches is None or kind in self.batches

    @abstractmethod
    def loss(self, step: Step) -> Tensor:
        """The loss of one batch, a scalar, without the weight."""
