"""Attention on attention (Huang et al. 2019, arXiv:1908.06954)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.nn.attention.multi_head import MultiHeadAttention


class AttentionOnAttention(MultiHeadAttention):
    """Multi-head attention with a gate for whether the result answers the query.

        v[t] = [sum_i a[1, t, i] V[1] g[i]; …]              as in `MultiHeadAttention`, without its O
        c[t] = (I [v[t]; h[t]] + b) * sigmoid(G [v[t]; h[t]] + b')

    h[t] (query features), v[t] (hidden); I and G (grid features, hidden + query features), b and b' (grid
    features); * multiplies elements: I is the information, G the gate.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        super().__init__(query_features, grid_features, hidden, heads)
        self.output = nn.Linear(hidden + query_features, 2 * grid_features)  # I above G

    def project(self, query: Tensor, seen: Tensor) -> Tensor:
        return F.glu(self.output(torch.cat([seen, query], dim=-1)), dim=-1)
