"""Additive attention (Bahdanau et al. 2014, arXiv:1409.0473; on image grids Xu et al. 2015)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.nn.attention.base import Attention


class AdditiveAttention(Attention):
    """A one-layer network of state and cell.

        e[t, i] = w · tanh(Q h[t] + K g[i] + b)        a[t] = softmax(e[t])        c[t] = sum_i a[t, i] g[i]

    h[t] (query features), g[i] (grid features); Q (hidden, query features), K (hidden, grid features),
    w and b (hidden). The keys are K g[i] + b.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int) -> None:
        super().__init__(query_features, grid_features, hidden)
        self.query = nn.Linear(query_features, hidden, bias=False)
        self.key = nn.Linear(grid_features, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def keys(self, grid: Tensor) -> Tensor:
        return self.key(grid)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        hidden = torch.tanh(self.query(query).unsqueeze(2) + keys.unsqueeze(1))
        return self.score(hidden).squeeze(-1)
