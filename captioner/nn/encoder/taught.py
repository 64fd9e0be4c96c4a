"""Photos whose captions were corrected: what the model adds to a photo that looks like one of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHARPNESS = 20.0
"""Factor of the similarities in the softmax that chooses among corrected photos."""
BEGINS, RISES = 0.5, 0.15
"""The similarity from which on a photo gets anything, by default, and how much more it takes to get all."""


class TaughtPhotos(nn.Module):
    """A vector for each corrected photo, which is added to all cells of the grid of a photo like it.

    Training all weights on a few captions changes the captions of all photos. A memory with a radius leaves
    the others as they are (Hartvigsen et al. 2023, "Aging with GRACE", arXiv:2211.11031; Mitchell et al.
    2022, arXiv:2206.06520):

        s[i] = cos(mean(d) - m, k[i])                     d: deepest stage, m: that of many photos, k: keys
        g' = g + clip((max(s) - begin) / rise, 0, 1) sum_i softmax(sharpness s)[i] v[i]

    All words and the detection read the grid, so one vector can change the whole caption. It moves all cells
    alike, so maps remain comparisons of cells.
    """

    keys: Tensor
    """float (photos, channels), each of length 1."""
    center: Tensor
    """float (channels,): the mean of photos, which similarities are measured from."""
    begin: Tensor
    """float (1,): similarities up to this one count for nothing."""

    def __init__(self, photos: int, channels: int, features: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(photos, features))
        self.register_buffer("keys", torch.zeros(photos, channels))
        self.register_buffer("center", torch.zeros(channels))
        self.register_buffer("begin", torch.full((1,), BEGINS))

    def describe(self, deepest: Tensor) -> Tensor:
        """Photos as keys: (batch, channels, rows, columns) of the deepest stage -> (batch, channels)."""
        return F.normalize(deepest.float().flatten(2).mean(dim=-1) - self.center, dim=-1)

    def similarity(self, deepest: Tensor) -> Tensor:
        """The deepest stage -> the similarity to each corrected photo, from -1 to 1, (batch, photos)."""
        return F.linear(self.describe(deepest), self.keys)

    def forward(self, deepest: Tensor) -> tuple[Tensor, Tensor]:
        """The deepest stage -> what is added to every cell, (batch, 1, features), and how much of it, from 0
        to 1, (batch, 1)."""
        similarity = self.similarity(deepest)
        near = ((similarity.amax(dim=-1, keepdim=True) - self.begin) / RISES).clamp(0, 1)
        total = near * (torch.softmax(SHARPNESS * similarity, dim=-1) @ self.vectors)
        return total.unsqueeze(1), near
