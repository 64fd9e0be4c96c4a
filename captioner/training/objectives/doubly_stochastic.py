"""A penalty on unequal attention to cells over a caption."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.objectives.base import Objective
from captioner.training.run import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class DoublyStochasticOptions(ObjectiveOptions):
    weight: float = 0.1


class DoublyStochastic(Objective[DoublyStochasticOptions]):
    """Every cell should get its share of the attention over a caption (Xu et al. 2015, equation 14)."""

    Options = DoublyStochasticOptions

    def loss(self, step: Step) -> Tensor:
        return doubly_stochastic(step.attention, step.targets, step.memory["mask"])


def doubly_stochastic(attention: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """Inequality of the cells: mean over captions of sum_i (tau - sum_t a[t, i])^2.

    `attention` (batch, captions, length, cells), `targets` int64 (batch, captions, length), `mask` bool
    (batch, cells), the cells that count. tau is the share of a cell under uniform attention, words / cells
    (Xu et al. 2015, section 4.2.1, where it is 1).
    """
    real = (targets != Vocabulary.pad_id).unsqueeze(-1)
    coverage = (attention.float() * real).sum(dim=2)
    counts = torch.ones_like(coverage) if mask is None else mask.unsqueeze(1).expand_as(coverage).float()
    alike = (coverage * counts).sum(dim=-1, keepdim=True) / counts.sum(dim=-1, keepdim=True)
    return ((alike - coverage) * counts).square().sum(dim=-1).mean()
