"""A caption that shows itself."""

import dataclasses
import html.parser
import sys

import numpy as np
import pytest
from PIL import Image
from support.captions import HOSTILE_TEXTS, make_caption

from captioner.errors import RuntimeMissingError

PHOTO = Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 90, 3), dtype=np.uint8))


def elements(page: str) -> list[str]:
    found: list[str] = []
    parser = html.parser.HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    return found


def test_a_notebook_shows_the_photo_and_a_panel_a_word():
    shown = make_caption().of(PHOTO)._repr_html_()
    assert elements(shown).count("img") == 5
    assert "a small lit place" in shown
    assert "20%" in shown


@pytest.mark.parametrize("source", [None, "moved/away.jpg", b"not an image"])
def test_without_the_photo_the_words_are_shown(source):
    shown = make_caption().of(source)._repr_html_()
    assert elements(shown).count("img") == 0
    assert elements(shown).count("figcaption") == 4


def test_hostile_texts_are_escaped():
    shown = make_caption(HOSTILE_TEXTS).of(PHOTO)._repr_html_()
    assert elements(shown).count("img") == len(HOSTILE_TEXTS) + 1
    assert "script" not in elements(shown)
    assert shown.encode("utf-8")


def test_plot_draws_a_panel_a_word():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = make_caption(("$a$", "b", "c")).of(PHOTO).plot(columns=3)
    assert axes.shape == (2, 3)
    assert [place.get_title() for place in axes.flat] == ["", "$a$  20%", "b  43%", "c  67%", "", ""]
    axes.flat[0].figure.canvas.draw()
    pyplot.close("all")


def test_plot_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RuntimeMissingError, match="pip install matplotlib"):
        make_caption().plot()


def test_captions_without_maps_show_their_text():
    caption = make_caption()
    bare = dataclasses.replace(caption, words=())
    assert "a small lit place" in bare.of(PHOTO)._repr_html_()
