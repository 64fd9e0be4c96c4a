"""Maps that point at what they name.

A map learns from the likelihood of its word alone, and any cell that tells the word will do. The class
evidence of the model knows better where things are, so the maps of names are taught to look there:
supervised attention (Liu et al. 2017, arXiv:1605.09553), by the model itself instead of people.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.training.config.train_options import ObjectiveOptions, TrainOptions
from captioner.training.objectives.base import Objective, check_classes
from captioner.training.run import Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class PointingOptions(ObjectiveOptions):
    weight: float = 0.1
    sure: float = 0.1
    """A name counts if its classes have at least this share of the probability in some cell."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        if not 0 < self.sure <= 1:
            raise DataError(f"sure must be above 0 and at most 1, got {self.sure}")

    def check(self, run: TrainOptions) -> None:
        if not run.may_have_classes:
            raise DataError("pointing needs [model.bonus] classes")
        if run.model.resize != "squash":
            raise DataError("pointing needs squashed photos: in others, padding may look like a class")


class Pointing(Objective[PointingOptions]):
    """Cross-entropy of the maps of names with where their classes are, which gets no gradient."""

    Options = PointingOptions

    def __init__(self, options: PointingOptions, run: Run) -> None:
        super().__init__(options, run)
        check_classes(run.model, "pointing")

    def loss(self, step: Step) -> Tensor:
        evidence = step.model.evidence
        assert evidence is not None
        with torch.autocast(step.grid.device.type, enabled=False):
            with torch.no_grad():
                shares = evidence.shares(
                    evidence.class_logits(step.model.encoder.evidence_input(step.outputs).float())
                )
                # Behind the named words a row of zeros, for all others.
                shares = torch.cat([shares, torch.zeros_like(shares[..., :1])], dim=-1).transpose(1, 2)
                column = evidence.column[step.targets]
                own = torch.take_along_dim(shares, column.flatten(1).unsqueeze(-1), dim=1)
            own = own.unflatten(1, column.shape[1:])
            return pointing(evidence.seen(step.attention.float()), own, self.options.sure)


def pointing(maps: Tensor, shares: Tensor, sure: float) -> Tensor:
    """Mean cross-entropy of the maps with the shares, whose sum is made 1, over words with a share of at
    least `sure` in some cell; 0 if there are none. Both float (batch, captions, length, cells)."""
    counts = (shares.amax(dim=-1) >= sure).to(maps.dtype)
    wanted = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-6)
    missed = -(wanted * maps.clamp(min=1e-6).log()).sum(dim=-1)
    return (missed * counts).sum() / counts.sum().clamp(min=1)
