"""The moving picture: typed words, a gaze that travels, a file that plays everywhere."""

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.captions import HOSTILE_TEXTS, blob, make_caption

from captioner.errors import OptionsError
from captioner.maps.saliency import relative
from captioner.overlay.animation import ANIMATION_FORMATS, ENDING_MS, FIXATION_MS, travel
from captioner_client import render_animation


def frames(data: bytes) -> list[tuple[Image.Image, int]]:
    animation = Image.open(io.BytesIO(data))
    shown = []
    for number in range(animation.n_frames):
        animation.seek(number)
        animation.load()
        shown.append((animation.convert("RGB"), animation.info["duration"]))
    return shown


@pytest.mark.parametrize(("format", "magic"), [("GIF", b"GIF89a"), ("WEBP", b"RIFF")])
def test_words_come_one_by_one_and_the_end_rests(photo, format, magic):
    data = render_animation(photo, make_caption(), format=format)
    assert data.startswith(magic)
    assert Image.open(io.BytesIO(data)).info["loop"] == 0
    shown = frames(data)
    steps = ANIMATION_FORMATS[format].steps
    assert len(shown) == 2 + 4 * steps
    durations = [duration for _, duration in shown]
    assert durations.count(FIXATION_MS) == 4
    assert durations[-1] == ENDING_MS
    ink = [(np.asarray(picture)[picture.width * 2 // 3 + 8 :, :, 0] < 220).sum() for picture, _ in shown]
    resting = ink[0::steps]
    assert resting[0] == 0
    assert all(later > earlier for earlier, later in pairwise(resting))


@pytest.mark.parametrize(("words", "side"), [("a dog", 0), ("כלב שחור", 1)])
def test_the_caption_begins_where_its_script_does(photo, words, side):
    shown = frames(render_animation(photo, make_caption(words.split()), width=240))
    picture = shown[ANIMATION_FORMATS["GIF"].steps][0]  # the first word alone
    ink = np.asarray(picture.convert("L"))[160 + 8 :] < 120
    assert ink.nonzero()[1].mean() // 120 == side


@pytest.mark.parametrize("style", ["panels", "heatmap", "contour", "spotlight"])
def test_every_painted_style_moves(photo, style):
    shown = frames(render_animation(photo, make_caption(), style, width=240))
    assert shown[0][0].width == 240
    first, last = shown[ANIMATION_FORMATS["GIF"].steps][0], shown[-2][0]
    assert np.abs(np.asarray(first, float) - np.asarray(last, float)).max() > 60


@pytest.mark.parametrize("format", ["GIF", "WEBP"])
def test_a_file_can_be_sent_to_people(format):
    """Ten words over a photo with much detail."""
    photo = Path(__file__).parents[2] / "examples" / "raccoon.jpg"
    data = render_animation(photo, make_caption(["a", "raccoon", "in", "the", "grass"] * 2), format=format)
    assert len(data) < 1_000_000


def test_a_matrix_does_not_move(photo):
    with pytest.raises(OptionsError, match="style must be one of"):
        render_animation(photo, make_caption(), "matrix")


def test_the_gaze_travels_between_words():
    field = travel(blob(3, 3, 1), blob(10, 10, 1), 0.5, (140, 140), relative)
    y, x = np.unravel_index(field.argmax(), field.shape)
    assert (y / 10, x / 10) == pytest.approx((7, 7), abs=0.3)


@pytest.mark.parametrize("format", ["GIF", "WEBP"])
@pytest.mark.parametrize("size", [(1, 1), (2000, 3), (3, 2000)])
def test_photos_of_any_shape(format, size):
    data = render_animation(Image.new("RGB", size, "teal"), make_caption(), format=format, width=200)
    assert frames(data)[0][0].width == 200


def test_any_text_can_be_typed(photo):
    assert len(frames(render_animation(photo, make_caption(HOSTILE_TEXTS), width=200))) > len(HOSTILE_TEXTS)
