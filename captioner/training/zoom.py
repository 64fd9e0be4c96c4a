"""Random parts of photos, enlarged in cached features, so that every epoch differs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def random_part(batch: int, smallest: float, device: torch.device) -> Tensor:
    """For half of the images a random part of at least the share `smallest` of their area, else the whole:
    float (batch, 2, 3), affine maps from the whole, in [-1, 1], to the part.

    Crops of the photos themselves (`captioner.training.crops`) are sharper, but each takes space in the
    cache; these are free.
    """
    side = torch.empty(batch, 1, device=device).uniform_(smallest, 1.0).sqrt()
    side = torch.where(torch.rand(batch, 1, device=device) < 0.5, side, torch.ones_like(side))
    middle = (2 * torch.rand(batch, 2, device=device) - 1) * (1 - side)
    return torch.cat([torch.diag_embed(side.expand(-1, 2)), middle.unsqueeze(-1)], dim=-1)


def enlarge(maps: Sequence[Tensor], part: Tensor) -> list[Tensor]:
    """All `maps` with the same `part` enlarged to fill them: float (batch, channels, rows, columns) of the
    stages of an encoder, or uint8 (batch, height, width, 3)."""
    return [_enlarge(stage, part) for stage in maps]


def _enlarge(stage: Tensor, part: Tensor) -> Tensor:
    if not stage.is_floating_point():
        pixels = _enlarge(stage.permute(0, 3, 1, 2).float(), part)
        return pixels.permute(0, 2, 3, 1).round().to(stage.dtype)
    points = F.affine_grid(part, list(stage.shape), align_corners=False)
    return F.grid_sample(stage, points, padding_mode="border", align_corners=False)
