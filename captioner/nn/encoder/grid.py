"""From pixels to a grid of feature vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.nn.encoder.backbone import STRIDES, Backbone
from captioner.nn.encoder.refiner import GridRefiner


class GridEncoder(nn.Module):
    """A backbone whose stages from `stride` on are fused into one grid.

    The finest stage says where, the deepest says what: each is projected to `features`, the deeper ones are
    enlarged to the finest, and their sum is normalised. Xu et al. 2015 take one 14 x 14 stage; adding the
    deep stage to it is the idea of feature pyramids (Lin et al. 2017, arXiv:1612.03144). A `GridRefiner` may
    follow.
    """

    def __init__(
        self, backbone: Backbone, stride: int, features: int, refiner: GridRefiner | None = None
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.stride = stride
        self.first = STRIDES.index(stride)
        self.projections = nn.ModuleList(
            nn.Linear(channels, features) for channels in backbone.channels[self.first :]
        )
        self.norm = nn.LayerNorm(features)
        self.refiner = refiner

    def forward(self, pixels: Tensor, mask: Tensor | None = None) -> Tensor:
        """uint8 (batch, height, width, 3) -> (batch, rows * columns, features), top row first.

        `mask` bool (batch, rows * columns) is False for cells that are no part of the photo.
        """
        return self.fuse(self.stages([self.backbone.normalize(pixels)], 0, len(STRIDES)), mask)

    def stages(self, maps: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
        """Run segments `start` to `stop` on the last of `maps`, and keep every stage the grid needs.

        The maps are (batch, channels, rows, columns), finest first. `stages(m, 0, k)` is what can be cached
        when the first k segments are frozen, `stages(cached, k, 3)` is the rest.
        """
        kept = list(maps) if start > self.first else []
        last = maps[-1]
        for index in range(start, stop):
            last = self.backbone.segments[index](last)
            if index >= self.first:
                kept.append(last)
        return kept or [last]

    def fuse(self, stages: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Stages (batch, channels, rows, columns), finest first -> (batch, rows * columns, features)."""
        size = stages[0].shape[-2:]
        total = self._project(0, stages[0])
        for index, stage in enumerate(stages[1:], start=1):
            total = total + F.interpolate(
                self._project(index, stage), size=size, mode="bilinear", align_corners=False
            )
        grid = self.norm(total.flatten(2).transpose(1, 2))
        return grid if self.refiner is None else self.refiner(grid, *size, mask)

    def _project(self, index: int, stage: Tensor) -> Tensor:
        # Projecting before enlarging costs a quarter of the other order and gives the same.
        return torch.movedim(self.projections[index](torch.movedim(stage, 1, -1)), -1, 1)
