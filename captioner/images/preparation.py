"""Describes how an image becomes the model input, for every process that prepares images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from captioner.images.letterbox import Letterbox
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.opening import load_pixels
from captioner.images.sources import ImageInput

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Preparation:
    """How an image becomes the model input."""

    size: int
    """Side of the square input, in pixels."""
    letterbox: Letterbox | None = None
    """How photos are fitted into the square; None if they are squashed."""
    limits: ImageLimits = DEFAULT_LIMITS

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the pixels: (size, size, channels)."""
        return self.size, self.size, 3 if self.letterbox is None else 4

    def load(self, image: ImageInput) -> Pixels:
        """uint8 (size, size, channels), as `load_pixels` makes it. Raises an `ImageError`."""
        return load_pixels(image, self.size, self.limits, self.letterbox)
