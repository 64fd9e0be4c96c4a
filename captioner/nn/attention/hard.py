"""Hard attention (Xu et al. 2015, arXiv:1502.03044, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from captioner.nn.attention.additive import AdditiveAttention
from captioner.nn.attention.base import masked_softmax

SAMPLED_SHARE = 0.5
"""Of the images of a training batch; the others are given all cells, as in soft attention: the authors' way
to steadier training."""
ALIKE = 1e-5
"""Cells whose weights differ by no more than this share of them are alike, and the first is taken: rounding,
which differs between runtimes, must not decide where the model looks."""


class HardAttention(AdditiveAttention):
    """One cell for every word.

        a[t] = softmax(e[t]), e[t] as in `AdditiveAttention`            the policy
        training:   s[t] ~ a[t], and for half of the images all cells as in soft attention
        else:       s[t] = argmax_i a[t, i]
        c[t] = g[s[t]]

    g[i] (grid features). In training the weights returned are the policy a[t]. Drawing a cell has no
    gradient; `drawn_cells` gives the probabilities of what was drawn, from which
    `captioner.training.reinforce` makes one. Else the weights are 1 at the cell and 0 elsewhere.
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
                weights = weights * mask.unsqueeze(1)  # where all is masked there is no peak
            return weights @ values, weights
        cells = torch.multinomial(policy.detach().float().flatten(0, 1), 1).view(*policy.shape[:2], 1)
        sampled = torch.rand(len(policy), 1, 1, device=policy.device) < SAMPLED_SHARE
        if self.drawn is not None:
            log_probs = policy.gather(-1, cells).squeeze(-1).float().clamp(min=1e-9).log()
            self.drawn.append(torch.where(sampled.squeeze(-1), log_probs, 0.0))
        return torch.where(sampled, _one_hot(cells, policy), policy) @ values, policy


@contextmanager
def drawn_cells(network: nn.Module) -> Iterator[list[Tensor]]:
    """While it lasts, a list of the log-probabilities of the cells that the hard attention of `network` draws
    in training: (batch, queries) for each call, 0 where nothing was drawn. Without hard attention, it stays
    empty."""
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
