"""The interface of all attentions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from captioner.errors import DataError


class Attention(nn.Module, ABC):
    """Compares a query with every cell of a grid.

    What depends on the grid alone is computed once per image, by `keys` and `values`.
    """

    has_sentinel = False
    """Whether part of the attention may go to no cell; `forward` then needs a sentinel."""
    heads = 1
    """Number of maps per query; `forward` returns their mean."""

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        """`hidden` is the size in which queries and cells are compared, `heads` the number of comparisons
        that share it; attentions without such a choice ignore them."""
        super().__init__()

    @abstractmethod
    def keys(self, grid: Tensor) -> Tensor:
        """(batch, cells, grid features) -> input of `scores`, (batch, …)."""

    def values(self, grid: Tensor) -> Tensor:
        """(batch, cells, grid features) -> input of the context, (batch, …): the cells themselves."""
        return grid

    @abstractmethod
    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """(batch, queries, query features) and keys -> (batch, queries, cells), or with several heads
        (batch, heads, queries, cells)."""

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sentinel: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """`forward` for queries (batch, queries, query features)."""
        weights = masked_softmax(self.scores(query, keys), mask)
        return weights @ values, weights

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        sentinel: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend.

        query     (batch, query features) or (batch, queries, query features)
        keys      (batch, …), from `keys`
        values    (batch, …), from `values`
        mask      bool (batch, cells), True for cells that may be attended to; None for all
        sentinel  as query: what is known without looking; only needed if `has_sentinel`

        Returns the context, (batch, [queries,] grid features), and the weights, (batch, [queries,] cells):
        non-negative, summing to 1, or to 1 minus the share of the sentinel, over the unmasked cells.

        Raises `DataError` for a row whose cells are all masked; an exported or compiled graph, which cannot
        check the mask, returns zeros, and so does a GPU, which would have to wait for the answer.
        """
        if query.dim() == 2:
            if sentinel is not None:
                sentinel = sentinel.unsqueeze(1)
            context, weights = self(query.unsqueeze(1), keys, values, mask, sentinel)
            return context.squeeze(1), weights.squeeze(1)
        context, weights = self.attend(query, keys, values, mask, sentinel)
        if mask is not None:
            seen = mask.any(dim=1)
            if torch.compiler.is_compiling() or mask.device.type != "cpu":
                if type(self).attend is not Attention.attend:  # `Attention.attend` already gives zeros
                    context = context * seen[:, None, None]
            elif not seen.all():
                raise DataError(f"image {int(seen.int().argmin()) + 1} of the batch has no cell to look at")
        return context, weights

    def maps(self, query: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor | None:
        """The map of each head, (batch, queries, heads, cells), for queries (batch, queries, query
        features); None if there is one head. Their mean is the weights of `forward`."""
        if self.heads == 1:
            return None
        return masked_softmax(self.scores(query, keys), mask).transpose(1, 2)


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last axis of (batch, …, cells), zero where the (batch, cells) mask is False."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    allowed = mask.unsqueeze(1) if scores.dim() == 3 else mask.unsqueeze(1).unsqueeze(1)
    weights = torch.softmax(scores.masked_fill(~allowed, torch.finfo(scores.dtype).min), dim=-1)
    return weights * allowed
