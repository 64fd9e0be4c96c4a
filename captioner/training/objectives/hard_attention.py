"""A gradient for the cells that hard attention samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.objectives.attention_entropy import attention_entropy
from captioner.training.objectives.base import Objective
from captioner.training.objectives.likelihood import log_probs_of
from captioner.training.run import Run, Step

MOMENTUM = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class HardAttentionOptions(ObjectiveOptions):
    reward: float = 0.1
    """Weight of the reward for the drawn cells (Xu et al. 2015, lambda_r; 0.1 in their program)."""
    entropy: float = 0.01
    """Weight of the bonus on the entropy of the maps, so that other cells are still tried (Xu et al. 2015,
    lambda_e)."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        self.at_least(0, "reward", "entropy")


class HardAttention(Objective[HardAttentionOptions]):
    """Trains the attention `hard`; 0 for models with any other."""

    Options = HardAttentionOptions

    baseline: Tensor

    def __init__(self, options: HardAttentionOptions, run: Run) -> None:
        super().__init__(options, run)
        self.reward = CellReward()
        # As a buffer the baseline is part of the checkpoint; NaN before the first batch.
        self.register_buffer("baseline", torch.tensor(torch.nan, dtype=torch.float64))

    def loss(self, step: Step) -> Tensor:
        if not step.forced.drawn:
            return step.logits.new_zeros(())
        baseline = float(self.baseline)
        self.reward.baseline = None if baseline != baseline else baseline
        rewarded = self.reward.loss(step.forced.drawn, step.logits, step.targets)
        assert self.reward.baseline is not None  # after a batch
        self.baseline.fill_(self.reward.baseline)
        entropy = attention_entropy(step.attention, step.targets)
        return self.options.reward * rewarded - self.options.entropy * entropy


class CellReward:
    """REINFORCE (Williams 1992) with a moving-average baseline, as Xu et al. 2015 (arXiv:1502.03044, section
    4.1) train hard attention.

        loss = -mean_t (log p(y[t] | s[t]) - b) log a[t, s[t]]
        b <- 0.9 b + 0.1 mean_t log p(y[t] | s[t])

    The reward of a cell sampled for a word is the log-probability of that word, not of the whole caption (the
    authors' program offers both). For the decoder `lstm` this is the cell's whole effect. In decoders
    whose later words depend on earlier attention, that effect is ignored, which adds a bias and avoids
    much variance.
    """

    def __init__(self) -> None:
        self.baseline: float | None = None
        """In nats; None before the first batch, which uses its own mean."""

    def loss(self, drawn: Sequence[Tensor], logits: Tensor, targets: Tensor) -> Tensor:
        """`drawn` as `drawn_cells` gives it for one teacher-forced call of a decoder, `logits` (batch,
        captions, length, vocabulary), `targets` int64 (batch, captions, length); padding is ignored."""
        if drawn[0].shape[1] == targets[0].numel():  # a call for all words, in each layer
            log_probs = torch.stack(tuple(drawn)).sum(dim=0).view(targets.shape)
        else:  # a call for each word
            log_probs = torch.stack(tuple(drawn), dim=-1).unflatten(-1, (targets.shape[2], -1)).sum(dim=-1)
        real = targets != Vocabulary.pad_id
        with torch.no_grad():
            said = log_probs_of(logits, targets)
            mean = float(said[real].mean())
            baseline = mean if self.baseline is None else self.baseline
            self.baseline = MOMENTUM * baseline + (1 - MOMENTUM) * mean
            advantage = (said - baseline) * real
        return -(advantage * log_probs).sum() / real.sum()
