"""Hard attention (Xu et al. 2015, arXiv:1502.03044, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from captioner.nn.attention.additive import AdditiveAttention
from captioner.nn.attention.base import masked_softmax

SAMPLED_SHARE = 0.5
"""Share of the images of a training batch whose cells are sampled. The others use soft attention, which the
authors found to stabilize training."""
ALIKE = 1e-5
"""Relative difference up to which weights count as equal; the first such cell is taken. Rounding, which
differs between runtimes, must not decide where the model looks."""


class HardAttention(AdditiveAttention):
    """One cell for every word.

        a[t] = softmax(e[t]), e[t] as in `AdditiveAttention`            the policy
        training:   s[t] ~ a[t], and for half of the images all cells as in soft attention
        else:       s[t] = argmax_i a[t, i]
        c[t] = g[s[t]]

    g[i] (grid features). In training the weights returned are the policy a[t]. Sampling a cell has no
    gradient; the objective `hard_attention` makes one of the probabilities that `drawn_cells` gives. Outside
    training, the weights are 1 at the cell and 0 elsewhere.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        super().__init__(query_features, grid_features, hidden, heads)
        self.drawn: list[Tensor] | None = None

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sentinel: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        policy = masked_softmax(self.scores(query, keys), mask)
        if not self.training:
            weights = _one_hot(_first_peak(policy), policy)
            if mask is not None:
                weights = weights * mask.unsqueeze(1)  # a row without unmasked cells has no peak
            return weights @ values, weights
        cells = torch.multinomial(policy.detach().float().flatten(0, 1), 1).view(*policy.shape[:2], 1)
        sampled = torch.rand(len(policy), 1, 1, device=policy.device) < SAMPLED_SHARE
        if self.drawn is not None:
            log_probs = policy.gather(-1, cells).squeeze(-1).float().clamp(min=1e-9).log()
            self.drawn.append(torch.where(sampled.squeeze(-1), log_probs, 0.0))
        return torch.where(sampled, _one_hot(cells, policy), policy) @ values, policy


@contextmanager
def drawn_cells(network: nn.Module) -> Iterator[list[Tensor]]:
    """Within this context, collect the log-probabilities of the cells that the hard attention of `network`
    samples in training: (batch, queries) for each call, 0 where nothing was sampled. Empty without hard
    attention."""
    drawn: list[Tensor] = []
    attentions = [module for module in network.modules() if isinstance(module, HardAttention)]
    for attention in attentions:
        attention.drawn = drawn
    try:
        yield drawn
    finally:
        for attention in attentions:
            attention.drawn = None


def _first_peak(weights: Tensor) -> Tensor:
    """(batch, queries, cells) -> the first of the largest, int64 (batch, queries, 1)."""
    peak = weights.amax(dim=-1, keepdim=True)
    return (weights >= peak * (1 - ALIKE)).int().argmax(dim=-1, keepdim=True)


def _one_hot(cells: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter(-1, cells, 1.0)
