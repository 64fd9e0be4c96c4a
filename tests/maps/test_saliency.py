"""Maps as pictures: where a cell lands, what is kept, how colours run."""

import numpy as np
import pytest
from PIL import Image
from support.captions import blob, lit_cell

from captioner.maps import saliency
from captioner.maps.colors import COLORMAPS


@pytest.mark.parametrize("size", [(140, 140), (70, 280), (300, 40), (14, 14), (97, 131)])
@pytest.mark.parametrize("cell", [(0, 0), (2, 11), (13, 13), (7, 0)])
def test_a_lit_cell_is_centred_on_its_pixels(size, cell):
    field = saliency.resample(lit_cell(*cell), size)
    for axis in (0, 1):
        profile = field.sum(axis=1 - axis)
        centre = (np.arange(len(profile)) + 0.5) @ profile / profile.sum() * 14 / len(profile)
        inside = 2 < cell[axis] < 11  # at the border the smoothing is cut off on one side
        assert centre == pytest.approx(cell[axis] + 0.5, abs=0.02 if inside else 0.45)
        peak = np.flatnonzero(profile == profile.max())
        assert np.any(
            (peak >= cell[axis] * len(profile) / 14 - 1) & (peak <= (cell[axis] + 1) * len(profile) / 14)
        )


def test_resampling_neither_rings_nor_loses_weight():
    weights = np.random.default_rng(0).random((14, 14)).astype(np.float32) ** 8
    field = saliency.resample(weights, (140, 140))
    assert field.min() >= 0
    assert field.max() <= weights.max()
    assert field.mean() == pytest.approx(weights.mean(), rel=0.01)
    assert np.allclose(saliency.resample(np.full((5, 9), 0.25), (60, 31)), 0.25)


def test_a_map_larger_than_the_picture_is_averaged():
    weights = np.zeros((64, 64), np.float32)
    weights[::2] = 1
    assert np.allclose(saliency.resample(weights, (8, 8))[1:-1], 0.5, atol=0.01)


def test_a_shift_moves_the_map_by_cells():
    weights = blob(6, 6, 0.8)
    here = saliency.resample(weights, (140, 140))
    there = saliency.resample(weights, (140, 140), shift=(2, -3))
    assert np.allclose(np.roll(here, (20, -30), (0, 1)), there, atol=1e-3)


def test_words_that_looked_everywhere_stay_faint():
    everywhere = np.full((14, 14), 1 / 196)
    assert saliency.relative(everywhere, (50, 50)).max() < 1e-4
    twice_as_much_on_one_half = np.where(np.arange(14) < 7, 4 / 3, 2 / 3) * np.ones((14, 1)) / 196
    assert saliency.relative(twice_as_much_on_one_half, (50, 50)).max() == pytest.approx(1 / 6, abs=0.01)
    assert saliency.relative(blob(5, 5, 1), (140, 140)).max() == pytest.approx(1, abs=0.02)
    assert saliency.relative(0.5 * blob(5, 5, 1), (140, 140)).max() == pytest.approx(1, abs=0.02)
    assert saliency.relative(np.zeros((14, 14)), (9, 9)).max() == 0
    assert saliency.relative(np.ones((1, 1)), (9, 9)).max() == 0


def test_gaze_is_the_place_of_the_peak():
    assert saliency.gaze(blob(3, 10, 1.5)) == pytest.approx((3.5 / 14, 10.5 / 14), abs=0.02)


@pytest.mark.parametrize("name", COLORMAPS)
def test_colours_grow_lighter_evenly(name):
    table = saliency.colorize(np.linspace(0, 1, 256), name).astype(float) / 255
    linear = np.where(table <= 0.04045, table / 12.92, ((table + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    lightness = np.where(luminance > 0.008856, 116 * np.cbrt(luminance) - 16, 903.3 * luminance)
    steps = np.diff(lightness[::15])
    assert steps.min() > 0
    assert steps.max() < 2.2 * np.median(steps)


@pytest.mark.parametrize("name", COLORMAPS)
def test_colours_are_those_of_matplotlib(name):
    colormaps = pytest.importorskip("matplotlib").colormaps
    expected = np.asarray(colormaps[name].colors) * 255
    assert np.abs(saliency.colorize(np.linspace(0, 1, 256), name) - expected).max() <= 7


def test_blending_leaves_what_was_not_looked_at():
    photo = Image.new("RGB", (20, 10), (10, 120, 240))
    values = np.zeros((10, 20), np.float32)
    values[:, 10:] = 1
    mixed = np.asarray(saliency.blend(photo, values, "viridis", 0.5))
    assert (mixed[:, :10] == (10, 120, 240)).all()
    assert np.allclose(
        mixed[0, 15], (np.array([10, 120, 240]) + saliency.colorize(1.0, "viridis")) / 2, atol=1
    )


FITTED = [((400, 100), (200, 50)), ((1, 1000), (1, 100)), ((10, 10), (100, 100))]


@pytest.mark.parametrize(("size", "expected"), FITTED)
def test_photos_fit_without_vanishing(size, expected):
    assert saliency.fit_photo(Image.new("RGB", size), 200, 100).size == expected
