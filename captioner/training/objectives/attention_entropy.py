"""A penalty on blurred maps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.training.likelihood import mean_of_words
from captioner.training.objectives.base import Objective, ObjectiveOptions
from captioner.training.step import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionEntropyOptions(ObjectiveOptions):
    weight: float = 0.02


class AttentionEntropy(Objective[AttentionEntropyOptions]):
    """Mean entropy of the maps. Every cell of a deep grid depends on most of the photo, so the likelihood
    hardly depends on the sharpness of maps; for people, it matters."""

    Options = AttentionEntropyOptions

    def loss(self, step: Step) -> Tensor:
        return attention_entropy(step.attention, step.targets)


def attention_entropy(attention: Tensor, targets: Tensor) -> Tensor:
    """Mean entropy, in nats, of the maps of all words: 0 for a single cell, log(cells) for a uniform map.

    `attention` (batch, captions, length, cells), `targets` int64 (batch, captions, length). The share of
    a visual sentinel is ignored: otherwise a word without attention would have the sharpest map.
    """
    weights = attention.float()
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-6)
    return mean_of_words(-torch.special.xlogy(weights, weights.clamp(min=1e-9)).sum(dim=-1), targets)
