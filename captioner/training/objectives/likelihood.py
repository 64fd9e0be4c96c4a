"""Log-probabilities of known captions, which several objectives and the validation need."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.model.vocabulary import Vocabulary


def log_probs_of(logits: Tensor, targets: Tensor) -> Tensor:
    """log p of the words, float32 (batch, captions, length).

    `logits` (batch, captions, length, vocabulary), `targets` int64 (batch, captions, length).
    """
    return torch.log_softmax(logits.float(), dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def log_likelihoods(logits: Tensor, targets: Tensor) -> Tensor:
    """Summed log-probability and number of the words of each image's captions: float64 (batch, 2)."""
    real = targets != Vocabulary.pad_id
    log_probs = (log_probs_of(logits, targets) * real).double()
    return torch.stack([log_probs.sum(dim=(1, 2)), real.sum(dim=(1, 2)).double()], dim=-1)


def divergence(scores: Tensor, wanted: Tensor) -> Tensor:
    """The mean Kullback-Leibler divergence of softmax(`scores`) from softmax(`wanted`), logits (…, classes)
    each."""
    ours, theirs = (torch.log_softmax(one.float(), dim=-1) for one in (scores, wanted))
    return F.kl_div(ours, theirs, log_target=True, reduction="none").sum(dim=-1).mean()


def mean_of_words(values: Tensor, targets: Tensor) -> Tensor:
    """The mean of `values` (batch, captions, length) over all words; padding is left out."""
    real = targets != Vocabulary.pad_id
    return (values * real).sum() / real.sum()
