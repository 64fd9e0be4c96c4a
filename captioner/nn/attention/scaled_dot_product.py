"""Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762, equation 1)."""

from __future__ import annotations

from torch import Tensor, nn

from captioner.nn.attention.base import Attention


class ScaledDotProductAttention(Attention):
    """A dot product of the projected state and cell, with a separate projection for the values.

        e[t, i] = Q h[t] · K g[i] / sqrt(hidden)      a[t] = softmax(e[t])      c[t] = sum_i a[t, i] V g[i]

    h[t] (query features), g[i] (grid features); Q (hidden, query features), K (hidden, grid features), V
    (grid features, grid features), each with a bias. The keys are K g[i], the values V g[i].

    Without the root, scores of independent features have a variance of `hidden`: at 512, one cell has nearly
    all the weight from the start, and hardly any gradient passes the softmax.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        super().__init__(query_features, grid_features, hidden, heads)
        self.query = nn.Linear(query_features, hidden)
        self.key = nn.Linear(grid_features, hidden)
        self.value = nn.Linear(grid_features, grid_features)
        self.scale = hidden**-0.5

    def keys(self, grid: Tensor) -> Tensor:
        return self.key(grid)

    def values(self, grid: Tensor) -> Tensor:
        return self.value(grid)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return (self.query(query) * self.scale) @ keys.transpose(1, 2)
