"""Photos that keep their shape: where they lie in the square, and which cells are theirs."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from captioner.images.letterbox import Letterbox, crop, fit
from captioner.images.opening import load_pixels, open_image, to_pixels

EXAMPLES = Path(__file__).parents[2] / "examples"
COLOR = (127, 120, 100)
BOX = Letterbox(16, COLOR)
SIZE = 224


def grey(width: int, height: int) -> Image.Image:
    return Image.new("RGB", (width, height), (10, 10, 10))


@pytest.mark.parametrize("stride", [8, 16, 32])
def test_the_photo_lies_in_the_middle_of_a_block_of_cells(stride: int) -> None:
    box = Letterbox(stride, COLOR)
    for length in range(1, SIZE + 1):
        begin = box.begin(length, SIZE)
        pixels = np.zeros((1, SIZE, SIZE, 4), dtype=np.uint8)
        pixels[0, begin : begin + length, :, 3] = 255
        mask = box.mask(pixels)
        rows = np.flatnonzero(mask[0].all(axis=1))
        assert mask.sum() == len(rows) * SIZE // stride, "rows are whole"
        assert len(rows) == max(1, (length + stride // 2) // stride)
        assert list(rows) == list(range(rows[0], rows[-1] + 1))
        assert begin >= 0 and begin + length <= SIZE
        left_over = SIZE // stride - len(rows)
        assert rows[0] in (left_over // 2, left_over - left_over // 2), "the block is in the middle"
        ends = begin - rows[0] * stride, (rows[-1] + 1) * stride - begin - length
        is_odd = length < stride or length > SIZE - stride
        assert max(map(abs, ends)) <= stride // (2 if is_odd else 4)
        np.testing.assert_array_equal(box.mask(pixels[:, ::-1]), mask[:, ::-1])


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [
        (640, 480, (224, 168)),
        (300, 200, (224, 149)),
        (200, 300, (149, 224)),
        (2000, 100, (224, 11)),
        (1, 1, (224, 224)),
        (1, 100_000, (1, 224)),
    ],
)
def test_the_longer_side_fills_the_square(width: int, height: int, expected: tuple[int, int]) -> None:
    assert fit(width, height, SIZE) == expected


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((640, 480), (11, 14)),
        ((480, 640), (14, 11)),
        ((300, 200), (9, 14)),
        ((300, 300), (14, 14)),
        ((2000, 100), (1, 14)),
        ((100, 2000), (14, 1)),
        ((3000, 1), (1, 14)),
    ],
)
def test_photos_of_any_shape(size: tuple[int, int], grid: tuple[int, int]) -> None:
    pixels = load_pixels(grey(*size), SIZE, letterbox=BOX)
    assert pixels.shape == (SIZE, SIZE, 4) and pixels.dtype == np.uint8
    is_photo = pixels[..., 3] == 255
    wide, high = fit(*size, SIZE)
    assert is_photo.sum() == wide * high
    assert (pixels[is_photo][:, :3] == 10).all()
    assert (pixels[~is_photo] == (*COLOR, 0)).all()
    mask = BOX.mask(pixels[None])[0]
    assert crop(np.ones((14, 14), dtype=np.float32), mask).shape == grid
    assert mask.sum() == grid[0] * grid[1]


def test_nothing_is_distorted() -> None:
    photo = grey(600, 250)
    ImageDraw.Draw(photo).ellipse((300, 50, 449, 199), fill="white")
    for letterbox, is_round in ((BOX, True), (None, False)):
        rows, columns = np.nonzero(load_pixels(photo, SIZE, letterbox=letterbox)[..., 0] > 128)
        high, wide = np.ptp(rows) + 1, np.ptp(columns) + 1
        assert (abs(high - wide) <= 1) == is_round
        assert abs(wide - 56) <= 1


def test_a_square_photo_is_as_it_would_be_squashed() -> None:
    photo = Image.open(EXAMPLES / "cat.jpg").convert("RGB").resize((500, 500))
    pixels = load_pixels(photo, SIZE, letterbox=BOX)
    np.testing.assert_array_equal(pixels[..., :3], load_pixels(photo, SIZE))
    assert (pixels[..., 3] == 255).all() and BOX.mask(pixels[None]).all()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.jpg"))[:4], ids=lambda path: path.name)
def test_reduced_decoding_hardly_changes_the_pixels(path: Path) -> None:
    photo = Image.open(path).convert("RGB")
    stream = io.BytesIO()
    photo.resize((photo.width * 3, photo.height * 3)).save(stream, "JPEG")
    whole = to_pixels(open_image(stream.getvalue()), 64, BOX)
    reduced = load_pixels(stream.getvalue(), 64, letterbox=BOX)
    np.testing.assert_array_equal(whole[..., 3], reduced[..., 3])
    difference = np.abs(whole.astype(int) - reduced)
    assert difference.mean() < 0.5 and difference.max() <= 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_on_its_side_lies_as_it_is_seen(orientation: int) -> None:
    turns = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # of Pillow, that undo the orientation
    upright = Image.open(EXAMPLES / "cat.jpg").convert("RGB").resize((90, 50))
    stored = upright
    if orientation > 1:
        stored = upright.transpose(Image.Transpose(turns[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    stored.save(file, "PNG", exif=exif)
    found = load_pixels(file.getvalue(), 64, letterbox=BOX)
    expected = to_pixels(upright, 64, BOX)
    np.testing.assert_array_equal(found[..., 3], expected[..., 3])
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("stride", "color"), [(0, COLOR), (15, COLOR), (16, (1, 2, 256)), (16, (-1, 2, 3)), (16, (1, 2))]
)
def test_what_cannot_be_is_refused(stride: int, color: tuple) -> None:
    with pytest.raises(ValueError, match=r"must be|a colour is"):
        Letterbox(stride, color)
