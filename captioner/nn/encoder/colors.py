"""The colours of each cell, which a network trained to tell kinds of things apart does not keep."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE = 4
"""Pixels along a side of the squares whose mean colours are counted."""


class ColorHistogram(nn.Module):
    """A histogram of colours in each cell, with bins that are learnt.

        b[p] = relu(W2 relu(W1 rgb[p]))             p: means of 4 x 4 pixels, normalised
        c[i] = sum over p in cell i of b[p] / squares in a cell

    Classifiers learn that a red car is a car as much as a blue one is; those trained with random changes of
    colour (EfficientNet's AutoAugment, Cubuk et al. 2019, arXiv:1805.09501) all the more. Soft histograms
    with learnt bins are those of Wang et al. 2016 (arXiv:1804.09398), here of two layers.
    """

    def __init__(self, bins: int, stride: int) -> None:
        """`stride`: pixels between cells, a multiple of 4."""
        super().__init__()
        self.squares = stride // SIDE
        self.first = nn.Conv2d(3, bins, 1)
        self.second = nn.Conv2d(bins, bins, 1)

    @staticmethod
    def shrink(pixels: Tensor) -> Tensor:
        """Normalised pixels (batch, 3, height, width) -> means (batch, 3, height / 4, width / 4)."""
        return F.avg_pool2d(pixels, SIDE)

    def forward(self, squares: Tensor) -> Tensor:
        """(batch, 3, height / 4, width / 4) -> (batch, bins, rows, columns)"""
        bins = torch.relu(self.second(torch.relu(self.first(squares))))
        return F.avg_pool2d(bins, self.squares)
