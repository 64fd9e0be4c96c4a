"""No attention: the baseline that every attention must beat."""

from __future__ import annotations

from torch import Tensor

from captioner.nn.attention.base import Attention


class NoAttention(Attention):
    """The mean of the grid for every query: one vector per image (as Vinyals et al. 2015, arXiv:1411.4555).

        a[t, i] = 1 / cells        c[t] = sum_i a[t, i] g[i]

    g[i] (grid features); masked cells do not count. It has no parameters.
    """

    def keys(self, grid: Tensor) -> Tensor:
        return grid.new_zeros(grid.shape[:2])  # one score for every cell, and the same for all

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return keys.unsqueeze(1).expand(-1, query.shape[1], -1)
