"""Figures of every style: against stored pictures, at odd shapes, with odd texts."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from PIL import Image, ImageFilter
from support.captions import HOSTILE_TEXTS, blob, lit_cell, make_caption

from captioner.errors import DataError, ImageUnreadableError, OptionsError
from captioner.maps.saliency import resample
from captioner.overlay.canvas import Canvas
from captioner.overlay.figure import choose_grid
from captioner.overlay.scene import OverlayOptions
from captioner.overlay.styles import ANIMATION, PAGE, PICTURE, STYLES, find_style
from captioner.overlay.styles.contour import levels
from captioner.overlay.text import _load, _warn_of, font_for, wrap
from captioner.results import Caption, Word
from captioner_client import render_overlay

REFERENCES = Path(__file__).parents[1] / "data" / "overlays"
"""Made by UPDATE_REFERENCES=1 pytest tests/overlay/test_stills.py; look at them before committing."""


def perceptual_distance(one: Image.Image, other: Image.Image) -> float:
    """Largest difference, 0 to 1, that is left when details as fine as the edges of letters are blurred."""
    a, b = (picture.convert("RGB").filter(ImageFilter.GaussianBlur(5)) for picture in (one, other))
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).mean(axis=2).max() / 255)


def test_styles_work_where_they_say() -> None:
    for name, listed in STYLES.items():
        style = find_style(name, PICTURE)
        assert (ANIMATION in listed.media) == (style.paint is not None)
        assert (PAGE in listed.media) == (style.page_mode is not None)


@pytest.mark.parametrize("style", STYLES)
def test_figures_look_as_those_that_people_have_looked_at(photo, style):
    figure = render_overlay(photo, make_caption(sentinel=0.3), style, width=480)
    path = REFERENCES / f"{style}.webp"
    if os.environ.get("UPDATE_REFERENCES"):
        path.parent.mkdir(exist_ok=True)
        figure.save(path, quality=90, method=6)
    reference = Image.open(path)
    assert figure.size == reference.size
    assert perceptual_distance(figure, reference) < 0.05
    moved = make_caption(
        maps=[np.roll(blob(at * 4, at * 4, 1.2), 4, axis=1) for at in range(4)], sentinel=0.3
    )
    assert perceptual_distance(render_overlay(photo, moved, style, width=480), reference) > 0.1


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("size", [(1, 1), (3000, 1), (1, 3000), (30, 20)])
def test_photos_of_any_shape(style, size):
    figure = render_overlay(Image.new("RGB", size, "teal"), make_caption(), style)
    assert figure.width == 1600
    assert 200 < figure.height < 4000


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("width", [200, 640])
def test_any_text_can_be_drawn(photo, style, width):
    figure = render_overlay(photo, make_caption(HOSTILE_TEXTS), style, width=width)
    assert figure.width == width


def test_all_words_of_a_long_caption_are_readable(photo):
    words = [f"word{number}" for number in range(64)]
    figure = render_overlay(photo, make_caption(words))
    grid = choose_grid([False] * 65, 1600, photo.height / photo.width, has_sentinel=False)
    assert grid.panel_width >= 80
    assert figure.height < 3 * figure.width


@pytest.mark.parametrize(
    ("count", "aspect"), [(2, 1.0), (9, 0.66), (12, 0.75), (12, 1.5), (12, 0.1), (12, 10.0)]
)
def test_panels_make_a_figure_of_pleasant_shape(count, aspect):
    grid = choose_grid([False] * count, 1600, aspect, has_sentinel=False)
    rows = -(-count // grid.columns)
    assert rows * grid.columns - count < max(2, count / 2)
    assert 0.2 < rows * grid.pitch / 1600 < 1.3


def test_small_words_have_small_panels_and_keep_their_order():
    smalls = [False, True, False, True, True, False, True]
    grid = choose_grid(smalls, 1600, 0.66, has_sentinel=False)
    assert 2 * grid.width_of(True) + grid.gap <= grid.width_of(False)
    spots = [grid.position(place)[::-1] for place in range(len(smalls))]
    assert spots == sorted(set(spots))
    for (_, x), is_small in zip(spots, smalls, strict=True):
        assert x + grid.width_of(is_small) <= 1600 - 2 * grid.margin + 1


def test_a_caption_of_small_words_only_has_large_panels(photo):
    whole = render_overlay(photo, make_caption(("a", "of", "the")), width=800)
    assert whole.size == render_overlay(photo, make_caption(("dog", "cat", "sun")), width=800).size


def test_a_glow_stands_out_from_a_white_wall_at_the_size_of_a_thumbnail():
    caption = make_caption(("dog",), [blob(7, 7, 0.6)])
    figure = render_overlay(Image.new("RGB", (300, 300), "white"), caption, width=800)
    small = np.asarray(figure.resize((100, figure.height // 8)).convert("RGB"), float)
    panel = small[15:50, 52:96]
    assert panel.max(axis=(0, 1))[2] < 200  # the wall is darker than the paper
    assert (panel[..., 0] - panel[..., 2]).max() > 100  # yellow on grey


def test_some_words_only(photo):
    caption = make_caption()
    assert render_overlay(photo, caption, words=[2]).height < render_overlay(photo, caption).height
    with pytest.raises(OptionsError, match="there is no word 5: the caption has 4 words"):
        render_overlay(photo, caption, words=[1, 4])
    with pytest.raises(OptionsError, match="there is no word 0"):
        render_overlay(photo, caption, words=[-1])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"style": "nice"}, "style"),
        ({"colormap": "jet"}, "colormap"),
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"width": 50}, "width"),
        ({"width": 50_000}, "width"),
    ],
)
def test_options_out_of_range_are_refused(photo, options, field):
    with pytest.raises(OptionsError) as raised:
        render_overlay(photo, make_caption(), **options)
    assert raised.value.field == field


@pytest.mark.parametrize(
    "attention",
    [None, np.zeros((3,)), np.full((2, 2), np.nan), -np.ones((2, 2)), np.zeros((0, 4))],
)
def test_captions_without_usable_maps_are_refused(photo, attention):
    caption = Caption("x", -1.0, (Word("x", -1.0, attention),))
    with pytest.raises(DataError):
        render_overlay(photo, caption)
    with pytest.raises(DataError):
        render_overlay(photo, Caption("", -1.0))


def test_a_missing_photo_is_an_image_error(tmp_path):
    with pytest.raises(ImageUnreadableError):
        render_overlay(tmp_path / "missing.jpg", make_caption())


def test_a_white_photo_has_an_edge():
    figure = render_overlay(Image.new("RGB", (300, 200), "white"), make_caption(), "contour", width=800)
    assert (np.asarray(figure.convert("L")) < 240).sum(axis=1).max() > 400  # hairlines along a row of panels


def test_no_specks_of_the_photo_lie_outside_its_edge():
    canvas = Canvas(40, 40)
    canvas.photo(0, 0, Image.new("RGB", (40, 40), "black"), 8)
    corner = np.asarray(canvas.image.convert("L")).astype(int)[:20, :20]
    assert (np.diff(np.maximum(corner[1:], 1), axis=1) <= 0).all()  # ever darker from the paper to the photo


@pytest.mark.parametrize("height", [0.35, 0.5, 0.62])
def test_contours_are_drawn_only_where_a_map_crosses_their_levels(height):
    values = sum(part * resample(lit_cell(2, x, (5, 6)), (80, 120)) for part, x in ((1, 1), (height, 4)))
    photo = Image.new("RGB", (120, 80), "white")
    picture = find_style("contour", PICTURE).paint(photo, values, OverlayOptions())
    is_near = np.zeros(values.shape, bool)
    for level in levels(values):
        inside = Image.fromarray((values >= level).astype(np.uint8))
        least, most = (
            np.asarray(inside.filter(rank(9))) for rank in (ImageFilter.MinFilter, ImageFilter.MaxFilter)
        )
        is_near |= least != most
    assert np.asarray(picture.convert("L"))[~is_near].min() > 180


def test_a_sentence_without_spaces_is_wrapped_between_letters():
    text = "e\N{COMBINING ACUTE ACCENT}" * 100
    lines = wrap(f"a {text} b", font_for(text, 20), 200)
    assert "".join(lines).replace(" ", "") == f"a{text}b"
    assert len(lines) > 3 and all(font_for(text, 20).getlength(line) <= 200 for line in lines)
    assert not any(line.startswith("\N{COMBINING ACUTE ACCENT}") for line in lines)


@pytest.mark.parametrize(("words", "side"), [("dog כלב", 0), ("(כלב) dog", 1)])
def test_panels_follow_the_direction_of_the_caption(words, side):
    figure = render_overlay(Image.new("RGB", (300, 200), "red"), make_caption(words.split()), width=800)
    photo = (np.asarray(figure) == (255, 0, 0)).all(axis=2)  # elsewhere its colours are muted
    assert photo.nonzero()[1].mean() // 400 == side


@pytest.mark.skipif(sys.platform != "linux", reason="says where Linux has its fonts")
def test_letters_are_drawn_with_the_font_of_their_script(tmp_path, monkeypatch):
    path = tmp_path / "fonts" / "noto" / "NotoSansDevanagari-Regular.ttf"
    path.parent.mkdir(parents=True)
    _save_font(path, "कत")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path))
    assert font_for("कत", 23).getname()[0] == "Two letters"


@pytest.mark.skipif(sys.platform != "linux", reason="says where Linux has its fonts")
def test_letters_that_no_font_has_are_told_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for cached in (_load, _warn_of):
        cached.cache_clear()
    for word in ("a dog", "\N{GRINNING FACE}"):
        font_for(word, 23)
    assert not caplog.messages
    for word in ("猫 ねこ กก", "猫", "ก"):
        font_for(word, 23)
    _load.cache_clear()
    assert len(caplog.messages) == 2 and all("boxes" in message for message in caplog.messages)
    assert "Noto's font for CJK (in Debian and Ubuntu: fonts-noto-cjk)" in caplog.text
    assert "Noto's font for Thai (in Debian and Ubuntu: fonts-noto-core)" in caplog.text


def _save_font(path: Path, letters: str) -> None:
    """Write a font that draws boxes for these letters."""
    pen = TTGlyphPen(None)
    for move, place in ((pen.moveTo, (0, 0)), (pen.lineTo, (0, 500)), (pen.lineTo, (500, 500))):
        move(place)
    pen.closePath()
    names = [".notdef", *(f"uni{ord(letter):04X}" for letter in letters)]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap({ord(letter): name for letter, name in zip(letters, names[1:], strict=True)})
    font.setupGlyf({name: TTGlyphPen(None).glyph() if name == ".notdef" else pen.glyph() for name in names})
    font.setupHorizontalMetrics(dict.fromkeys(names, (600, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Two letters", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(path)
