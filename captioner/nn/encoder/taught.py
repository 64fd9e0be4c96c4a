"""Photos whose captions were corrected, and kinds of pictures: what the model adds to a photo like them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHARPNESS = 20.0
"""Factor of the similarities in the softmax that chooses among corrected photos."""
BEGINS, RISES = 0.5, 0.15
"""The similarity from which on a photo gets anything, by default, and how much more it takes to get all."""


class Likeness(NamedTuple):
    """What a photo gets from those that it is like."""

    added: Tensor
    """What is added to every cell, (batch, 1, features)."""
    near: Tensor
    """How much of it, from 0 to 1, (batch, 1)."""
    heard: Tensor
    """The factor of what class evidence reads, (batch, 1)."""
    rare: Tensor
    """How near it is to photos whose corrections have rare words, from 0 to 1, (batch, rows)."""
    open: Tensor
    """How near it is to photos of lessons that brought new words, from 0 to 1, (batch, 1)."""


class TaughtPhotos(nn.Module):
    """A vector for each corrected photo, which is added to all cells of the grid of a photo like it.

    Training all weights on a few captions changes the captions of all photos. A memory with a radius leaves
    the others as they are (Hartvigsen et al. 2023, "Aging with GRACE", arXiv:2211.11031; Mitchell et al.
    2022, arXiv:2206.06520):

        s[i] = cos(mean(d) - m, k[i])                     d: deepest output, m: that of many photos, k: keys
        near = clip((max(s) - begin) / rise, 0, 1)
        p = softmax(sharpness s)
        g' = g + near sum_i p[i] v[i]
        d' = (1 - near sum_i p[i] q[i]) d                 d': what class evidence reads, q: from 0 to 1
        n[j] = near sum_i p[i] r[i, j]                    r: 1 where correction i has rare word j, else 0
        o = near sum_i p[i] b[i]                          b: 1 if the lesson of i brought new words, else 0

    All words and the detection read the grid, so one vector can change the whole caption. It moves all cells
    alike, so maps remain comparisons of cells. Many photos, such as all screenshots, share vectors. Their
    keys are directions that tell them from others (`training.corrections.prototypes`). The classes of
    pictures that are no photos are mostly wrong: q takes their evidence away. n says where rare words get
    scores (`captioner.nn.decoder.embedding.RareWords`), and o where new words may be said: a model that knew
    a kind of pictures before says none of theirs.
    """

    keys: Tensor
    """float (photos, channels). The key of a corrected photo has length 1. Keys that many share, and keys
    that must win over earlier ones, are longer."""
    center: Tensor
    """float (channels,): the mean of photos, which similarities are measured from."""
    begin: Tensor
    """float (1,): similarities up to this one count for nothing."""
    rare: Tensor
    """float (photos, rows): which corrections have which rare words; most models have no rows."""
    brings: Tensor
    """float (photos, 1): 1 for photos of lessons that brought new words; 0 for those from before this."""

    def __init__(self, photos: int, channels: int, features: int) -> None:
        super().__init__()
        self.vectors = nn.Parameter(torch.zeros(photos, features))
        self.quiet = nn.Parameter(torch.zeros(photos))
        self.register_buffer("keys", torch.zeros(photos, channels))
        self.register_buffer("center", torch.zeros(channels))
        self.register_buffer("begin", torch.full((1,), BEGINS))
        self.register_buffer("rare", torch.zeros(photos, 0))
        self.register_buffer("brings", torch.zeros(photos, 1))

    def describe(self, deepest: Tensor) -> Tensor:
        """Photos as keys: (batch, channels, rows, columns) of the deepest output -> (batch, channels)."""
        return F.normalize(deepest.float().flatten(2).mean(dim=-1) - self.center, dim=-1)

    def similarity(self, deepest: Tensor) -> Tensor:
        """The deepest output -> the similarity to each corrected photo, from -1 to 1, (batch, photos)."""
        return F.linear(self.describe(deepest), self.keys)

    def forward(self, deepest: Tensor) -> Likeness:
        """Reads the deepest output."""
        similarity = self.similarity(deepest)
        near = ((similarity.amax(dim=-1, keepdim=True) - self.begin) / RISES).clamp(0, 1)
        shares = torch.softmax(SHARPNESS * similarity, dim=-1)
        total = near * (shares @ self.vectors)
        heard = 1 - near * (shares @ self.quiet).unsqueeze(-1)
        rare, is_open = near * (shares @ self.rare), near * (shares @ self.brings)
        return Likeness(total.unsqueeze(1), near, heard, rare, is_open)
