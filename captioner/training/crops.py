"""Crops of training photos with changed lighting, to augment the data."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from PIL import Image, ImageEnhance

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
