"""A penalty on blurred maps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.objectives.base import Objective
from captioner.training.objectives.likelihood import mean_of_words
from captioner.training.run import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionEntropyOptions(ObjectiveOptions):
    weight: float = 0.02
    above: float = 0.0
    """Mean entropy, in nats, from which it is penalised. 2.6 is the entropy of 13 cells with equal weight."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        self.at_least(0, "above")


class AttentionEntropy(Objective[AttentionEntropyOptions]):
    """Mean entropy of the maps. Every cell of a deep grid depends on most of the photo, so the likelihood
    hardly depends on the sharpness of maps; for people, it matters."""

    Options = AttentionEntropyOptions

    def loss(self, step: Step) -> Tensor:
        return attention_entropy(step.attention, step.targets, self.options.above)


def attention_entropy(attention: Tensor, targets: Tensor, above: float = 0.0) -> Tensor:
    """Mean entropy, in nats, of the maps of all words: 0 for a single cell, log(cells) for a uniform map.
    With `above`, how far the mean exceeds that entropy, 0 if it does not.

    `attention` (batch, captions, length, cells), `targets` int64 (batch, captions, length). The share of
    a visual sentinel is ignored: otherwise a word without attention would have the sharpest map.
    """
    weights = attention.float()
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-6)
    entropy = -torch.special.xlogy(weights, weights.clamp(min=1e-9)).sum(dim=-1)
    return torch.relu(mean_of_words(entropy, targets) - above)
