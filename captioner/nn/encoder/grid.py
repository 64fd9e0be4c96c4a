"""From pixels to a grid of feature vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.nn.encoder.backbone import STRIDES, Backbone
from captioner.nn.encoder.colors import ColorHistogram
from captioner.nn.encoder.refiner import GridRefiner
from captioner.nn.encoder.taught import TaughtPhotos


class GridEncoder(nn.Module):
    """A backbone whose outputs from `stride` on are fused into one grid.

    The finest output locates, the deepest recognizes: each is projected to `features`, deeper ones are
    upsampled to the finest, and their sum is normalised. Xu et al. 2015 take one 14 x 14 output; adding the
    deep one to it is the idea of feature pyramids (Lin et al. 2017, arXiv:1612.03144). A `ColorHistogram`
    may be added, a `GridRefiner` may follow, and corrected photos may add something (`TaughtPhotos`).
    """

    def __init__(
        self,
        backbone: Backbone,
        stride: int,
        features: int,
        refiner: GridRefiner | None = None,
        color_levels: int = 0,
        taught: int = 0,
    ) -> None:
        """`taught`: the number of photos whose captions were corrected. Raises `DataError` for a stride that
        the backbone does not have."""
        super().__init__()
        if stride < backbone.finest:
            raise DataError(f"stride must be at least {backbone.finest} for this encoder, got {stride}")
        self.backbone = backbone
        self.stride = stride
        self.first = STRIDES.index(stride)
        self.projections = nn.ModuleList(
            nn.Linear(channels, features) for channels in backbone.channels[self.first :]
        )
        self.colors = ColorHistogram(color_levels, stride, features) if color_levels else None
        self.norm = nn.LayerNorm(features)
        self.refiner = refiner
        self.taught = TaughtPhotos(taught, backbone.channels[-1], features) if taught else None

    def forward(self, pixels: Tensor, mask: Tensor | None = None) -> Tensor:
        """uint8 (batch, height, width, 3) -> (batch, rows * columns, features), top row first.

        `mask` bool (batch, rows * columns) is False for cells outside the photo.
        """
        return self.fuse(self.outputs(self.inputs(pixels), 0, len(STRIDES)), mask)

    def inputs(self, pixels: Tensor) -> list[Tensor]:
        """uint8 (batch, height, width, 3) -> the input of `outputs`: the colours, if they are used, and the
        normalised pixels."""
        normal = self.backbone.normalize(pixels)
        return [normal] if self.colors is None else [self.colors.shrink(pixels), normal]

    def outputs(self, maps: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
        """Run segments `start` to `stop` on the last of `maps`, and keep every output the grid needs.

        The maps are (batch, channels, rows, columns), finest first; colours, which are kept as they are, come
        before them. `outputs(m, 0, k)`, of the `inputs` m, is what can be cached when the first k segments
        are frozen, `outputs(cached, k, 3)` is the rest.
        """
        kept = list(maps if start > self.first else maps[:-1])
        last = maps[-1]
        for index in range(start, stop):
            last = self.backbone.segments[index](last)
            if index >= self.first:
                kept.append(last)
        return kept if stop > self.first else [*kept, last]

    def fuse(self, outputs: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """What `outputs` returns for all segments -> (batch, rows * columns, features)."""
        grid = self.untaught(outputs, mask)
        return grid if self.taught is None else grid + self.taught(outputs[-1]).added

    def untaught(self, outputs: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """As `fuse`, without what corrected photos add."""
        first = 0 if self.colors is None else 1
        finest, *deeper = outputs[first:]
        size = finest.shape[-2:]
        total = _project(self.projections[0], finest)
        for projection, output in zip(self.projections[1:], deeper, strict=True):
            total = total + F.interpolate(
                _project(projection, output), size=size, mode="bilinear", align_corners=False
            )
        grid = self.norm(total.flatten(2).transpose(1, 2))
        if self.colors is not None:
            grid = grid + self.colors(outputs[0])
        return grid if self.refiner is None else self.refiner(grid, *size, mask)

    def evidence_input(self, outputs: Sequence[Tensor]) -> Tensor:
        """What class evidence reads: the deepest output, with what corrected photos leave of it."""
        deepest = outputs[-1]
        return deepest if self.taught is None else self.taught(deepest).heard[..., None, None] * deepest


def _project(projection: nn.Module, output: Tensor) -> Tensor:
    # Projecting before enlarging costs a quarter of the other order and gives the same.
    return torch.movedim(projection(torch.movedim(output, 1, -1)), -1, 1)
