"""A gradient for the cells that hard attention draws."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.training.objectives import log_probs_of

MOMENTUM = 0.9


class CellReward:
    """REINFORCE (Williams 1992) with a moving-average baseline, as Xu et al. 2015 (arXiv:1502.03044, section
    4.1) train hard attention.

        loss = -mean_t (log p(y[t] | s[t]) - b) log a[t, s[t]]
        b <- 0.9 b + 0.1 mean_t log p(y[t] | s[t])

    A cell drawn for a word is paid with the log-probability of that word, not of the whole caption (the
    authors' program offers both). For the decoder `lstm` this is all that the cell brings about; in decoders
    whose later words depend on what was seen before, that influence is left out, which costs a bias and saves
    much variance.
    """

    def __init__(self) -> None:
        self.baseline: float | None = None
        """In nats; None before the first batch, which takes its own mean."""

    def loss(self, drawn: Sequence[Tensor], logits: Tensor, targets: Tensor) -> Tensor:
        """`drawn` as `drawn_cells` gives it for one teacher-forced call of a decoder, `logits` (batch,
        captions, length, vocabulary), `targets` int64 (batch, captions, length); padding is left out."""
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
