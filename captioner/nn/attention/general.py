"""General attention (Luong et al. 2015, arXiv:1508.04025, "general" in section 3.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.nn.attention.base import Attention


class GeneralAttention(Attention):
    """A bilinear form of state and cell, and a layer that combines the attended cells with the state.

        e[t, i] = h[t] · W g[i]        a[t] = softmax(e[t])        c[t] = tanh(C [h[t]; sum_i a[t, i] g[i]])

    h[t] (query features), g[i] (grid features); W (query features, grid features), C (grid features,
    query features + grid features). The keys are W g[i]. c[t] is Luong's attentional vector, from which the
    decoder predicts the word. There is no hidden size and no scale: W is initialized so that scores of
    features with variance 1 also have variance 1, whatever their number.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        super().__init__(query_features, grid_features, hidden, heads)
        self.key = nn.Linear(grid_features, query_features, bias=False)
        nn.init.normal_(self.key.weight, std=(query_features * grid_features) ** -0.5)
        self.join = nn.Linear(query_features + grid_features, grid_features, bias=False)

    def keys(self, grid: Tensor) -> Tensor:
        return self.key(grid)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sentinel: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        seen, weights = super().attend(query, keys, values, mask, sentinel)
        return torch.tanh(self.join(torch.cat([query, seen], dim=-1))), weights
