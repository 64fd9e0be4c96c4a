"""Augmentation: crops of photos, enlarged parts of their features, and hidden cells and features."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor
from torch.nn import functional as F

from captioner.nn.decoder import Tensors, every_cell

SMALLEST = 0.6
"""Least share of the photo's area in a crop; smaller crops would show too little of the caption."""
STRETCH = 4 / 3
"""Largest factor between the aspect ratios of crop and photo."""
LIGHT = (0.7, 1.3)
"""Brightness, contrast and saturation are multiplied by factors from this range."""


def crop(photo: Image.Image, key: str, number: int) -> Image.Image:
    """Crop `number`, from 1, of the photo named `key`: always the same (Szegedy et al. 2015,
    arXiv:1409.4842, for random areas and shapes; Howard 2013, arXiv:1312.5402, for the light)."""
    random = _random(key, number)
    part = photo.crop(_box(photo.size, random))
    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
        part = change(part).enhance(random.uniform(*LIGHT))
    return part


def crop_box(size: tuple[int, int], key: str, number: int) -> tuple[int, int, int, int]:
    """Left, top, right and bottom, in pixels, of that crop of a photo of this width and height."""
    return _box(size, _random(key, number))


def _random(key: str, number: int) -> np.random.Generator:
    digest = hashlib.sha256(f"{key}/{number}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def _box(size: tuple[int, int], random: np.random.Generator) -> tuple[int, int, int, int]:
    area = random.uniform(SMALLEST, 1.0)
    stretch = math.exp(random.uniform(-1.0, 1.0) * math.log(STRETCH) / 2)
    width = max(1, round(size[0] * min(1.0, math.sqrt(area) * stretch)))
    height = max(1, round(size[1] * min(1.0, math.sqrt(area) / stretch)))
    left = int(random.integers(size[0] - width, endpoint=True))
    top = int(random.integers(size[1] - height, endpoint=True))
    return left, top, left + width, top + height


def random_part(batch: int, smallest: float, device: torch.device) -> Tensor:
    """For half of the images a random part of at least the share `smallest` of their area, else the whole:
    float (batch, 2, 3), affine maps from the whole, in [-1, 1], to the part.

    Crops of the photos themselves (`crop`) are sharper, but each takes space in the cache; these are free.
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


def hide_means(memory: Tensors, state: Tensors, share: float) -> tuple[Tensors, Tensors]:
    """Hide the mean of the photo, and the initial state that is read from it, of a share of the images.

    The decoder then knows the photo only through its attention, so that words depend on their maps.
    """
    if not share:
        return memory, state
    kept = (torch.rand(len(memory["mean"]), 1, device=memory["mean"].device) >= share).to(
        memory["mean"].dtype
    )
    memory = memory | {"mean": memory["mean"] * kept}
    return memory, state | {name: state[name] * kept.unsqueeze(-1) for name in ("hidden", "cell")}


def hide(grid: Tensor, mask: Tensor | None, cells: float, features: float) -> tuple[Tensor, Tensor | None]:
    """Hide a share of the cells, and zero a share of the features in all cells; the same for all captions of
    an image.

    `grid` (batch, cells, features), `mask` bool (batch, cells) or None; returns new ones. Remaining
    features are scaled up (the spatial dropout of Tompson et al. 2015, arXiv:1411.4280): hidden in single
    cells only, they would hardly change a mean over the photo. An image that would lose all cells keeps
    all. Since the image itself is changed, sampled captions and their gradient use the same policy.
    """
    if cells:
        seen = every_cell(grid) if mask is None else mask
        left = seen & (torch.rand(seen.shape, device=grid.device) >= cells)
        mask = torch.where(left.any(dim=1, keepdim=True), left, seen)
    return grid * F.dropout(torch.ones_like(grid[:, :1]), features), mask
