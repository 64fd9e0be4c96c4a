"""The interface of all attentions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Attention(nn.Module, ABC):
    """Where to look: a query is compared with every cell of a grid.

    The work that depends on the grid alone is done once per image by `keys`.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int) -> None:
        super().__init__()

    @abstractmethod
    def keys(self, grid: Tensor) -> Tensor:
        """(batch, cells, grid features) -> what scores are computed from, (batch, cells, key features)."""

    @abstractmethod
    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """(batch, queries, query features), (batch, cells, key features) -> (batch, queries, cells)."""

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend.

        query   (batch, query features) or (batch, queries, query features)
        keys    (batch, cells, key features), from `keys`
        values  (batch, cells, grid features)
        mask    bool (batch, cells), True where a cell may be looked at; None for all

        Returns the context, (batch, [queries,] grid features), and the weights, (batch, [queries,] cells):
        non-negative, summing to 1 over the unmasked cells. A row with no cell to look at gets zeros.
        """
        single = query.dim() == 2
        weights = masked_softmax(self.scores(query.unsqueeze(1) if single else query, keys), mask)
        context = weights @ values
        return (context.squeeze(1), weights.squeeze(1)) if single else (context, weights)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis of (batch, queries, cells), zero where the (batch, cells) mask is False."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    allowed = mask.unsqueeze(1)
    weights = torch.softmax(scores.masked_fill(~allowed, torch.finfo(scores.dtype).min), dim=-1)
    return weights * allowed
