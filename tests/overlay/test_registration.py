"""From end to end: a mark on the photo and the one lit cell over it are seen at the same place, whatever
the photo's shape, turned by EXIF or not, in every kind of output."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from support.browser import open_page
from support.captions import lit_cell, make_caption

from captioner_client import render_animation, render_html, render_overlay

GRID = (7, 7)
CELL = (1, 5)
WIDE, TALL, SQUARE = (700, 280), (280, 700), (420, 420)
ROTATED, MIRRORED = 6, 5
"""EXIF orientations: shown turned clockwise by 90 degrees, and mirrored along the diagonal."""
STORED_AS = {1: None, ROTATED: Image.Transpose.ROTATE_90, MIRRORED: Image.Transpose.TRANSPOSE}


def save_photo(path: Path, size: tuple[int, int], orientation: int, mark: str) -> Path:
    """A grey JPEG that, shown upright, has `size` and a mark that fills the cell."""
    upright = Image.new("RGB", size, "grey")
    height, width = size[1] / GRID[0], size[0] / GRID[1]
    box = (CELL[1] * width, CELL[0] * height, (CELL[1] + 1) * width - 1, (CELL[0] + 1) * height - 1)
    ImageDraw.Draw(upright).rectangle(box, mark)
    turn = STORED_AS[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    (upright if turn is None else upright.transpose(turn)).save(path, exif=exif, quality=95)
    return path


@pytest.fixture(
    params=[(WIDE, 1), (TALL, 1), (SQUARE, 1), (WIDE, ROTATED), (TALL, MIRRORED)],
    ids=["wide", "tall", "square", "wide-rotated", "tall-mirrored"],
)
def photos(request, tmp_path) -> tuple[Path, Path]:
    """The photo without and with its mark."""
    size, orientation = request.param
    plain = save_photo(tmp_path / "plain.jpg", size, orientation, "grey")
    return plain, save_photo(tmp_path / "marked.jpg", size, orientation, "white")


LIT = make_caption(("cell",), [lit_cell(*CELL, GRID)])
DARK = make_caption(("cell",), [np.zeros(GRID, np.float32)])


def change(before: Image.Image, after: Image.Image) -> np.ndarray:
    """How much each pixel differs, (height, width)."""
    one, other = (np.asarray(picture.convert("RGB")).astype(float) for picture in (before, after))
    return np.abs(one - other).sum(axis=2)


def last_run(places: np.ndarray) -> tuple[int, int]:
    """First and last of the last run of neighbouring numbers."""
    numbers = np.unique(places)
    starts = np.flatnonzero(np.diff(numbers, prepend=-9) > 2)
    return int(numbers[starts[-1]]), int(numbers[-1])


def last_box(difference: np.ndarray, share: float = 0.4) -> tuple[float, float, float, float]:
    """Centre and size (x, y, width, height) of the last region, rightmost or lowest, that differs much."""
    rows, columns = np.nonzero(difference > share * difference.max())
    top, bottom = last_run(rows)
    left, right = last_run(columns)
    return (left + right + 1) / 2, (top + bottom + 1) / 2, right + 1 - left, bottom + 1 - top


def assert_peak_in_the_middle(difference: np.ndarray, box: tuple[float, float, float, float]) -> None:
    rows, columns = np.nonzero(difference >= 0.98 * difference.max())
    x, y, width, height = box
    assert columns.mean() + 0.5 == pytest.approx(x, abs=0.06 * width + 1)
    assert rows.mean() + 0.5 == pytest.approx(y, abs=0.06 * height + 1)


@pytest.mark.parametrize("style", ["panels", "heatmap", "spotlight"])
def test_still(photos, style):
    def draw(photo, caption):
        return render_overlay(photo, caption, style, alpha=0.7, width=900)

    plain, marked = photos
    box = last_box(change(draw(plain, DARK), draw(marked, DARK)), share=0.15)  # the spotlight is dim
    assert_peak_in_the_middle(change(draw(plain, DARK), draw(plain, LIT)), box)


@pytest.mark.parametrize(("size", "grid"), [((800, 200), (1, 4)), ((200, 800), (4, 1)), ((600, 400), (3, 4))])
@pytest.mark.parametrize("style", ["panels", "heatmap", "spotlight"])
def test_the_maps_of_a_model_that_letterboxes(letterboxed_captioner, size, grid, style):
    """A map is drawn over the whole photo: the cell that is lit is the bright one, which was looked at."""
    last = grid[0] - 1, grid[1] - 1
    width, height = size[0] // grid[1], size[1] // grid[0]
    dark, bright = (Image.new("RGB", size, (60, 60, 60)) for _ in range(2))
    bright.paste((255, 255, 255), (size[0] - width, size[1] - height, *size))
    [caption] = letterboxed_captioner.caption([bright])
    looked = caption.words[0].attention
    assert looked.shape == grid and np.unravel_index(looked.argmax(), grid) == last

    def draw(photo, weights):
        return render_overlay(photo, make_caption(("word",), [weights]), style, alpha=0.7, width=900)

    nothing = np.zeros(grid, np.float32)
    x, y, wide, high = last_box(change(draw(dark, nothing), draw(bright, nothing)), share=0.15)
    difference = change(draw(dark, nothing), draw(dark, looked))
    rows, columns = np.nonzero(difference >= 0.98 * difference.max())
    assert columns.mean() == pytest.approx(x, abs=0.5 * wide) and rows.mean() == pytest.approx(
        y, abs=0.5 * high
    )


@pytest.mark.parametrize("format", ["GIF", "WEBP"])
def test_animation(photos, format):
    def fixation(photo, caption):
        animation = Image.open(io.BytesIO(render_animation(photo, caption, format=format)))
        animation.seek(animation.n_frames - 2)
        return animation.convert("RGB")

    plain, marked = photos
    dark = fixation(plain, DARK)
    box = last_box(change(dark, fixation(marked, DARK)))
    assert_peak_in_the_middle(change(dark, fixation(plain, LIT)), box)


def test_page(browser, photos, tmp_path):
    def screenshot(photo, caption, name):
        path = tmp_path / f"{name}.html"
        path.write_text(render_html(photo, caption, name=""), encoding="utf-8")
        with open_page(browser, path) as page:
            page.locator(".photo img").evaluate("(image) => image.decode()")
            return Image.open(io.BytesIO(page.locator(".photo").screenshot()))

    plain, marked = photos
    dark = screenshot(plain, DARK, "dark")
    box = last_box(change(dark, screenshot(marked, DARK, "marked")))
    assert_peak_in_the_middle(change(dark, screenshot(plain, LIT, "lit")), box)
