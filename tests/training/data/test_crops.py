"""Crops of training photos."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from captioner.training.data.augment import SMALLEST, crop


def where(width: int, height: int) -> Image.Image:
    """A photo whose red and green say, roughly, where a pixel was."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack([columns * 255 // width, rows * 255 // height, np.full_like(rows, 128)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


def test_a_crop_is_the_same_for_ever_and_unlike_the_others() -> None:
    photo = where(200, 120)
    first, again, second, other = (
        np.asarray(crop(photo, key, number).resize((20, 20)))
        for key, number in (("a/1.jpg", 1), ("a/1.jpg", 1), ("a/1.jpg", 2), ("a/2.jpg", 1))
    )
    assert (first == again).all()
    assert (first != second).any() and (first != other).any()


def test_crops_have_most_of_the_photo_and_about_its_shape() -> None:
    photo = where(200, 120)
    sizes = np.array([crop(photo, "a", number).size for number in range(1, 200)])
    shares = sizes.prod(axis=1) / (200 * 120)
    assert SMALLEST * 0.85 < shares.min() < 0.65 and shares.max() > 0.9
    stretch = (sizes[:, 0] / sizes[:, 1]) / (200 / 120)
    assert 0.74 < stretch.min() < 0.8 and 1.25 < stretch.max() < 1.36
    lights = {np.asarray(crop(photo, "a", number)).mean().round() for number in range(1, 20)}
    assert len(lights) > 5


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (3, 2)])
def test_the_smallest_photos_can_be_cropped(size: tuple[int, int]) -> None:
    photo = where(*size)
    for number in range(1, 20):
        part = crop(photo, "a", number)
        assert 1 <= part.width <= size[0] and 1 <= part.height <= size[1]
