"""What training minimises."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.model.vocabulary import Vocabulary


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Mean negative log-likelihood of a word (Szegedy et al. 2016, arXiv:1512.00567, for the smoothing).

    `logits` (batch, captions, length, vocabulary), `targets` int64 (batch, captions, length); padding is
    left out.
    """
    return F.cross_entropy(
        logits.flatten(0, 2).float(),
        targets.flatten(),
        ignore_index=Vocabulary.pad_id,
        label_smoothing=label_smoothing,
    )


def distillation(logits: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of what is said with what teachers would say (Hinton et al. 2015, arXiv:1503.02531).

    `taught` float (batch, captions, length, vocabulary) are probabilities; the rest as in `cross_entropy`.
    """
    return _mean_of_words(-(taught * torch.log_softmax(logits.float(), dim=-1)).sum(dim=-1), targets)


def doubly_stochastic(attention: Tensor, targets: Tensor, mask: Tensor | None = None) -> Tensor:
    """How unequally captions look at the cells: mean over captions of sum_i (tau - sum_t a[t, i])^2.

    `attention` (batch, captions, length, cells), `targets` int64 (batch, captions, length), `mask` bool
    (batch, cells), the cells that count. tau is what each cell gets when all are looked at alike, words /
    cells (Xu et al. 2015, section 4.2.1, where it is 1).
    """
    real = (targets != Vocabulary.pad_id).unsqueeze(-1)
    coverage = (attention.float() * real).sum(dim=2)
    counts = torch.ones_like(coverage) if mask is None else mask.unsqueeze(1).expand_as(coverage).float()
    alike = (coverage * counts).sum(dim=-1, keepdim=True) / counts.sum(dim=-1, keepdim=True)
    return ((alike - coverage) * counts).square().sum(dim=-1).mean()


def attention_entropy(attention: Tensor, targets: Tensor) -> Tensor:
    """Mean entropy, in nats, of the maps of all words: 0 for a single cell, log(cells) for all alike.

    `attention` (batch, captions, length, cells), `targets` int64 (batch, captions, length). Every cell of a
    deep grid has seen most of the photo, so the likelihood hardly cares how sharp a map is; people do. What
    a visual sentinel takes is left out: otherwise a word that looks at nothing would have the crispest map.
    """
    weights = attention.float()
    weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-6)
    return _mean_of_words(-torch.special.xlogy(weights, weights.clamp(min=1e-9)).sum(dim=-1), targets)


def word_detection(logits: Tensor, counts: Tensor) -> Tensor:
    """Mean cross-entropy of the words of an image's captions, without their order, with softmax(logits).

    `logits` (batch, vocabulary), `counts` float (batch, vocabulary): how often the captions say each word,
    times what it is worth. Fang et al. 2015 (arXiv:1411.4952) detect words before they write captions.
    """
    shares = counts / counts.sum(dim=-1, keepdim=True).clamp(min=1e-6)
    return -(shares * torch.log_softmax(logits.float(), dim=-1)).sum(dim=-1).mean()


def policy_gradient(logits: Tensor, targets: Tensor, advantages: Tensor) -> Tensor:
    """REINFORCE: -advantage * log p(word), a mean over words (Rennie et al. 2017, arXiv:1612.00563).

    `targets` are sampled captions (batch, samples, length), `advantages` (batch, samples).
    """
    return _mean_of_words(-advantages.unsqueeze(-1) * log_probs_of(logits, targets), targets)


def log_probs_of(logits: Tensor, targets: Tensor) -> Tensor:
    """log p of the words, float32 (batch, captions, length); arguments as of `cross_entropy`."""
    return torch.log_softmax(logits.float(), dim=-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def log_likelihoods(logits: Tensor, targets: Tensor) -> Tensor:
    """Of each image the summed log p of its captions' words, and how many they are: float64 (batch, 2)."""
    real = targets != Vocabulary.pad_id
    log_probs = (log_probs_of(logits, targets) * real).double()
    return torch.stack([log_probs.sum(dim=(1, 2)), real.sum(dim=(1, 2)).double()], dim=-1)


def _mean_of_words(values: Tensor, targets: Tensor) -> Tensor:
    """The mean over all words, of values (batch, captions, length); padding is left out."""
    real = targets != Vocabulary.pad_id
    return (values * real).sum() / real.sum()
