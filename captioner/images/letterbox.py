"""Letterboxing: fits photos into a square without distortion, and tells which grid cells they fill.

The longer side of the photo fills the square. Along the other axis the photo covers the nearest whole number
of cells, a block in the middle of the grid, and is centred in that block: its edges are at most a quarter of
a cell from cell borders (half a cell for photos thinner than a cell, or nearly square). A cell belongs to the
photo if the photo reaches its centre.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Letterbox:
    """The letterboxing of a model. Raises `ValueError`."""

    stride: int
    """Side of a cell in pixels, even."""
    color: tuple[int, int, int]
    """Padding colour, red, green and blue from 0 to 255: the mean of the training pixels."""

    def __post_init__(self) -> None:
        if self.stride < 2 or self.stride % 2:
            raise ValueError(f"a cell must be an even number of pixels wide, got {self.stride}")
        if len(self.color) != 3 or not all(0 <= value <= 255 for value in self.color):
            raise ValueError(f"a colour is three values from 0 to 255, got {self.color}")

    def begin(self, length: int, size: int) -> int:
        """Offset of a photo of `length` pixels along one axis of a square of `size`, a multiple of the
        stride."""
        cells = max(1, (length + self.stride // 2) // self.stride)
        block = (size // self.stride - cells) // 2 * self.stride
        return max(0, block + (cells * self.stride - length + 1) // 2)

    def mask(self, pixels: npt.NDArray[np.uint8]) -> Mask:
        """Cells that belong to the photo, bool (batch, rows, columns), for letterboxed pixels, uint8
        (batch, height, width, 4), whose last channel is 0 outside the photo."""
        batch, height, width, _ = pixels.shape
        cells = (batch, height // self.stride, self.stride, width // self.stride, self.stride)
        centre = slice(self.stride // 2 - 1, self.stride // 2 + 1)
        return np.asarray((pixels[..., 3].reshape(cells)[:, :, centre, :, centre] > 0).any(axis=(2, 4)))


def fit(width: int, height: int, size: int) -> tuple[int, int]:
    """Width and height in pixels of a photo whose longer side is scaled to `size`; at least 1."""
    longer = max(width, height)
    return max(1, round(width * size / longer)), max(1, round(height * size / longer))


def crop(grid: npt.NDArray[np.float32], mask: Mask) -> npt.NDArray[np.float32]:
    """The rows and columns of (rows, columns) that contain cells of the photo; `mask` has the same shape."""
    if mask.all():
        return grid
    return grid[np.ix_(mask.any(axis=1), mask.any(axis=0))]
