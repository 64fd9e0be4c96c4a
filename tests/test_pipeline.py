"""Batches that fail because of some of their images, or because they are too large."""

from __future__ import annotations

import numpy as np
import pytest
from support.models import SIZE, FakeModel

from captioner.errors import DeviceError, NotAnImageError
from captioner.options import FALLBACK
from captioner.pipeline import caption_loaded

PIXELS = [np.full((SIZE, SIZE, 3), value, np.uint8) for value in range(7)]


@pytest.mark.parametrize("fits", [1, 2, 3])
def test_a_batch_that_is_out_of_memory_is_split_until_it_fits(fits: int) -> None:
    model, broken = FakeModel(), NotAnImageError("no image")
    model.memory_images = fits
    outcomes = caption_loaded(model, [*PIXELS[:4], broken, *PIXELS[4:]], FALLBACK)
    captions = [model.describe(pixels, FALLBACK) for pixels in PIXELS]
    assert outcomes == [*captions[:4], broken, *captions[4:]]


def test_no_memory_for_a_single_image_ends_the_run() -> None:
    model = FakeModel()
    model.memory_images = 0
    with pytest.raises(DeviceError, match="no memory left"):
        caption_loaded(model, PIXELS, FALLBACK)
