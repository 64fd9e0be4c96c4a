"""Augmentation: crops of photos, enlarged parts of their features, disturbed pixels, hidden cells and
features."""

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
from captioner.surrogates import name_bytes

SMALLEST = 0.6
"""Least share of the photo's area in a crop; smaller crops would show too little of the caption."""
STRETCH = 4 / 3
"""Largest factor between the aspect ratios of crop and photo."""
LIGHT = (0.7, 1.3)
"""Brightness, contrast and saturation are multiplied by factors from this range."""
SCALED, MOVED = 0.02, 0.015
"""Most that a disturbed photo is enlarged and moved by, as shares of half its side: no place moves by more
than 2% of the side."""
SHRUNK = 144
"""Pixels of a side to which a disturbed photo is shrunk and enlarged again, to blur it."""
BRIGHTNESS, OFFSET, NOISE = 0.12, 8.0, 6.0
"""Most that the light of a disturbed photo is changed by, as a share and in levels of 256, and the largest
deviation of its noise in levels."""


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
    digest = hashlib.sha256(name_bytes(f"{key}/{number}")).digest()
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
    outputs of segments, or uint8 (batch, height, width, 3)."""
    return [_enlarge(each, part) for each in maps]


def _enlarge(maps: Tensor, part: Tensor) -> Tensor:
    if not maps.is_floating_point():
        pixels = _enlarge(maps.permute(0, 3, 1, 2).float(), part)
        return pixels.permute(0, 2, 3, 1).round().to(maps.dtype)
    points = F.affine_grid(part, list(maps.shape), align_corners=False)
    return F.grid_sample(maps, points, padding_mode="border", align_corners=False)


def disturb(pixels: Tensor, share: float) -> Tensor:
    """Change a `share` of the photos slightly, each in a random way: they are moved and scaled, blurred (half
    of them), made darker or lighter, and noisy. uint8 (batch, height, width, 3) -> the same.

    So much differs between copies of a photo. People hardly see it, but it misleads networks (Hendrycks and
    Dietterich 2019, arXiv:1903.12261). Cells still show what they did.
    """
    chosen = _uniform(pixels, 0, 1) < share
    photos = pixels.permute(0, 3, 1, 2).float()
    changed = _blurred(_moved(photos))
    changed = changed * _uniform(pixels, 1 - BRIGHTNESS, 1 + BRIGHTNESS) + _uniform(pixels, -OFFSET, OFFSET)
    changed = changed + torch.randn_like(changed) * _uniform(pixels, 0, NOISE)
    changed = torch.where(chosen, changed.round().clamp(0, 255), photos)
    return changed.permute(0, 2, 3, 1).to(pixels.dtype)


def _uniform(pixels: Tensor, low: float, high: float) -> Tensor:
    """A random number for each photo: float (batch, 1, 1, 1)."""
    return torch.empty(len(pixels), 1, 1, 1, device=pixels.device).uniform_(low, high)


def _moved(photos: Tensor) -> Tensor:
    scale = 1 - _uniform(photos, 0, SCALED).view(-1, 1).expand(-1, 2)
    middle = torch.empty(len(photos), 2, 1, device=photos.device).uniform_(-MOVED, MOVED)
    return _enlarge(photos, torch.cat([torch.diag_embed(scale), middle], dim=-1))


def _blurred(photos: Tensor) -> Tensor:
    """Half of the photos, each by another amount."""
    size = photos.shape[-2:]
    small = [min(SHRUNK, side) for side in size]
    coarse = F.interpolate(photos, size=small, mode="bilinear", antialias=True, align_corners=False)
    coarse = F.interpolate(coarse, size=size, mode="bilinear", align_corners=False)
    amount = _uniform(photos, 0, 1) * (_uniform(photos, 0, 1) < 0.5)
    return torch.lerp(photos, coarse, amount)


def hide_means(memory: Tensors, state: Tensors, share: float) -> tuple[Tensors, Tensors]:
    """Hide the mean of the photo, and the initial state that is read from it, of a share of the images.

    The decoder then knows the photo only through its attention, so that words depend on their maps.
    """
    if not share:
        return memory, state
    mean = memory["mean"]
    kept = (torch.rand(len(mean), 1, device=mean.device) >= share).to(mean.dtype)
    started = {name: state[name] * kept.unsqueeze(-1) for name in ("hidden", "cell")}
    return memory | {"mean": mean * kept}, state | started


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
