"""The interface of all objectives: what a stage minimises is a weighted sum of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.data.batches import CAPTIONS, Group
from captioner.training.run import Run, Step

O = TypeVar("O", bound=ObjectiveOptions)  # noqa: E741


class Objective(nn.Module, ABC, Generic[O]):
    """One term of the loss of a stage.

    A module, so that it can have parameters and buffers of its own: they are trained with the model, saved in
    the checkpoint, carried to the next stage with the same objective, and left out of the exported model.
    """

    Options: ClassVar[type[Any]] = ObjectiveOptions
    batches: ClassVar[frozenset[str] | None] = frozenset({CAPTIONS})
    """Kinds of batches that it has a loss for (`Group.kind`); None for all."""

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


def check_classes(model: CaptionModel, name: str) -> None:
    """Raise `DataError` if the objective of this name needs class evidence and the start had none."""
    if model.evidence is None:
        raise DataError(f"{name} needs classes, and the model that the run starts from has none")
