"""The colours of each cell, which networks trained to classify hardly preserve."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE = 4
"""Pixels along a side of the squares whose mean colours are counted."""


class ColorHistogram(nn.Module):
    """A histogram of each cell's colours, as features of the grid.

        h[i, r, g, b] = mean over squares p of cell i of hat(r, R[p]) hat(g, G[p]) hat(b, B[p])
        hat(k, x) = max(0, 1 - |x (levels - 1) - k|)           k = 0 … levels - 1
        c[i] = C h[i] levels^3 / 4

    R, G, B in [0, 1] are means of 4 x 4 pixels, which count towards the neighbouring bins (trilinear
    interpolation, as in Dalal and Triggs 2005). Classifiers learn to ignore colour, since a red car is as
    much a car as a blue one; more so if trained with random changes of colour (EfficientNet's AutoAugment,
    Cubuk et al. 2019, arXiv:1805.09501). C (features, levels^3) is initialized with zeros, so that
    colours can be added to a trained model.
    """

    def __init__(self, levels: int, stride: int, features: int) -> None:
        """`levels` of red, green and blue each, at least 2; `stride` is a multiple of 4."""
        super().__init__()
        self.squares = stride // SIDE
        self.scale = levels**3 / 4  # a bin then varies about as much as a normalised feature does
        self.projection = nn.Linear(levels**3, features, bias=False)
        nn.init.zeros_(self.projection.weight)
        self.register_buffer("levels", torch.arange(levels, dtype=torch.float32), persistent=False)

    levels: Tensor

    @staticmethod
    def shrink(pixels: Tensor) -> Tensor:
        """uint8 (batch, height, width, 3) -> squares, float32 (batch, 3, height / 4, width / 4) in [0, 1]."""
        return F.avg_pool2d(pixels.permute(0, 3, 1, 2).float() / 255, SIDE)

    def forward(self, squares: Tensor) -> Tensor:
        """Squares -> (batch, rows * columns, features), top row first."""
        return self.projection(self.count(squares).flatten(2).transpose(1, 2) * self.scale)

    def count(self, squares: Tensor) -> Tensor:
        """Squares -> shares of the bins, (batch, levels^3, rows, columns), red changing slowest."""
        near = squares.unsqueeze(2) * (len(self.levels) - 1) - self.levels.view(-1, 1, 1)
        red, green, blue = torch.relu(1 - near.abs()).unbind(dim=1)
        bins = red[:, :, None, None] * green[:, None, :, None] * blue[:, None, None, :]
        return F.avg_pool2d(bins.flatten(1, 3), self.squares)
