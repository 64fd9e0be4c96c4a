"""Multi-head attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2)."""

from __future__ import annotations

from torch import Tensor, nn

from captioner.errors import DataError
from captioner.nn.attention.base import Attention, masked_softmax
from captioner.nn.blocks import join_heads, split_heads


class MultiHeadAttention(Attention):
    """Several parallel scaled dot products, each with its own map.

        e[k, t, i] = Q[k] h[t] · K[k] g[i] / sqrt(d)                  k of `heads`, d = hidden / heads
        a[k, t] = softmax(e[k, t])        a[t] = mean_k a[k, t]       maps of the heads, and the map
        c[t] = O [sum_i a[1, t, i] V[1] g[i]; …; sum_i a[heads, t, i] V[heads] g[i]]

    h[t] (query features), g[i] (grid features); Q[k] (d, query features), K[k] and V[k] (d, grid features), O
    (grid features, hidden), each with a bias. The keys are K[k] g[i], (batch, heads, d, cells), the values
    V[k] g[i], (batch, heads, cells, d): the layout that a step multiplies.

    Raises `DataError` if `hidden` is not a multiple of `heads`.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        super().__init__(query_features, grid_features, hidden, heads)
        if hidden % heads:
            raise DataError(
                f"attention_hidden must be a multiple of attention_heads, got {hidden} and {heads}"
            )
        self.heads = heads
        self.query = nn.Linear(query_features, hidden)
        self.key = nn.Linear(grid_features, hidden)
        self.value = nn.Linear(grid_features, hidden)
        self.output: nn.Module = nn.Linear(hidden, grid_features)
        self.scale = (hidden // heads) ** -0.5

    def keys(self, grid: Tensor) -> Tensor:
        return split_heads(self.key(grid), self.heads).transpose(2, 3)

    def values(self, grid: Tensor) -> Tensor:
        return split_heads(self.value(grid), self.heads)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return split_heads(self.query(query) * self.scale, self.heads) @ keys

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sentinel: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        maps = masked_softmax(self.scores(query, keys), mask)
        return self.project(query, join_heads(maps @ values)), maps.mean(dim=1)

    def project(self, query: Tensor, seen: Tensor) -> Tensor:
        """Queries and the results of all heads, (batch, queries, hidden), -> context."""
        return self.output(seen)
