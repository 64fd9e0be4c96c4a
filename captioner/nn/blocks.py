"""Building blocks of Transformers (Vaswani et al. 2017, arXiv:1706.03762)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def split_heads(values: Tensor, heads: int) -> Tensor:
    """(batch, …, positions, features) -> (batch, …, heads, positions, features / heads)."""
    return values.unflatten(-1, (heads, -1)).transpose(-2, -3)


def join_heads(values: Tensor) -> Tensor:
    """(batch, …, heads, positions, features / heads) -> (batch, …, positions, features)."""
    return values.transpose(-2, -3).flatten(-2)


def feed_forward(features: int, inner: int, dropout: float) -> nn.Sequential:
    """W2 relu(W1 x + b1) + b2 on the last axis; W1 (inner, features), W2 (features, inner)."""
    return nn.Sequential(
        nn.Linear(features, inner), nn.ReLU(), nn.Dropout(dropout), nn.Linear(inner, features)
    )


def sinusoids(positions: Tensor, features: int) -> Tensor:
    """Position encodings: sin(w t) and cos(w t) with decreasing frequencies w = 10000^(-2 i / features).

    `positions` (count,) of any number type. Returns float32 (count, features), sines first.
    """
    half = (features + 1) // 2
    index = torch.arange(half, dtype=torch.float32, device=positions.device)
    angles = positions.float().unsqueeze(1) * torch.pow(10000.0, -2.0 * index / features)
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)[:, :features]


def masked_mean(grid: Tensor, mask: Tensor) -> Tensor:
    """Mean of (batch, cells, features) over the cells where the (batch, cells) mask is True."""
    share = mask.to(grid.dtype)
    return (grid * share.unsqueeze(-1)).sum(dim=1) / share.sum(dim=1, keepdim=True).clamp(min=1)
