"""Small tensors, and attentions as a decoder calls them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioner.nn.attention import Attention

BATCH, QUERIES, CELLS, QUERY, GRID, HIDDEN, HEADS = 3, 4, 6, 5, 7, 8, 2


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, grid and sentinels."""
    return (
        torch.randn(BATCH, QUERIES, QUERY),
        torch.randn(BATCH, CELLS, GRID),
        torch.randn(BATCH, QUERIES, QUERY),
    )


def half_mask() -> Tensor:
    mask = torch.ones(BATCH, CELLS, dtype=torch.bool)
    mask[0, 1] = mask[1, [0, 3]] = False
    return mask


def make(kind: type[Attention]) -> Any:
    return kind(QUERY, GRID, HIDDEN, HEADS).eval()


def attend(
    attention: Attention,
    query: Tensor,
    grid: Tensor,
    mask: Tensor | None = None,
    sentinel: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As a decoder calls it."""
    return attention(query, attention.keys(grid), attention.values(grid), mask, sentinel)


def by_hand(attention: Attention) -> dict[str, np.ndarray]:
    """The parameters in double precision."""
    return {name: p.detach().double().numpy() for name, p in attention.named_parameters()}


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def same(found: Tensor, expected: np.ndarray | Tensor) -> None:
    np.testing.assert_allclose(found.detach().numpy(), np.asarray(expected), rtol=1e-4, atol=1e-6)
