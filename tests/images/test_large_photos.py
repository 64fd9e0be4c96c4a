"""Large JPEG files are decoded at a reduced size on every path, and hardly a pixel is another for it."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.images import opening
from captioner.images.letterbox import Letterbox
from captioner.images.limits import DEFAULT_LIMITS
from captioner.images.preparation import Preparation
from captioner.images.workers import DecodeWorkers

EXAMPLE = Path(__file__).parents[2] / "examples" / "raccoon.jpg"
SIZE = 64
LETTERBOX = Letterbox(16, (127, 127, 127))
SHAPES = {"wide": (1600, 900), "tall": (700, 1700), "panorama": (3000, 500)}


@cache
def photo(shape: str, orientation: int) -> bytes:
    """A JPEG with detail, whose sides are no multiples of the reductions."""
    width, height = SHAPES[shape]
    with Image.open(EXAMPLE) as source:
        image = source.convert("RGB").resize((width + 3, height + 5), Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    image.save(file, "JPEG", quality=92, exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("letterbox", [None, LETTERBOX])
@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("shape", SHAPES)
def test_pixels_are_those_of_the_whole_photo(
    shape: str, orientation: int, letterbox: Letterbox | None
) -> None:
    content = photo(shape, orientation)
    reduced = opening.load_pixels(content, SIZE, letterbox=letterbox).astype(int)
    whole = opening.to_pixels(opening.open_image(content), SIZE, letterbox).astype(int)
    assert np.abs(reduced - whole).mean() < 1 and np.abs(reduced - whole).max() <= 16
    if letterbox is not None:
        assert (reduced[..., 3] == whole[..., 3]).all()


@pytest.mark.parametrize(
    ("shape", "letterbox", "scale"),
    [
        ("wide", None, 4),  # 900 is more than four times 3 x 64
        ("wide", LETTERBOX, 8),  # 1600 is more than eight times 3 x 64; the height only fills its share
        ("panorama", None, 2),
        ("panorama", LETTERBOX, 8),
    ],
)
def test_the_decoder_reduces_as_far_as_the_model_allows(
    shape: str, letterbox: Letterbox | None, scale: int
) -> None:
    target = opening.REDUCING_GAP * SIZE
    stored = opening._read(photo(shape, 1), DEFAULT_LIMITS, target, fitted=letterbox is not None)
    width, height = SHAPES[shape]
    assert stored.rgb.width <= (width + 3) / scale + 1 and stored.rgb.height <= (height + 5) / scale + 1


def test_every_path_gives_the_same_pixels(tmp_path: Path) -> None:
    content = photo("wide", 6)
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    preparation = Preparation(SIZE, LETTERBOX)
    expected = preparation.load(content)
    assert (preparation.load(path) == expected).all()
    assert (preparation.load(io.BytesIO(content)) == expected).all()
    with DecodeWorkers(preparation, 1) as workers:
        assert (workers.load(content) == expected).all()
