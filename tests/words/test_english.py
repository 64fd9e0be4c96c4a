"""Articles, and the names that take one."""

from __future__ import annotations

import pytest

from captioner.words.english import ARTICLES, article, stands_alone, with_article

AN = """
    elephant orange airplane apple igloo umbrella old-fashioned ipod atm atv eel eye egyptian ouzel oncoming
    onion onlooker underwater unusual unhappy uncut ugly urban urchin upright upside-down usher udder utter
    unidentified unlit uninhabited unimpressed ewok oar
    hour hourglass honest honorary honour heirloom hors
    8 80s 11 11th 18-wheeler 85mm
    x-ray s-shaped h f-16 rv rvs suv suvs led lcd mri Orange ORANGE éclair Édouard
"""
A = """
    man horse yellow young yacht tree white wooden
    uniform uniformed unicycle unicorn unique unison united unit university universal unisex
    use used user usual utensil utility ukulele urinal us usa usb uk u u-turn ufo uv ubiquitous
    european euphonium eucalyptus ewe ewer one one-way one's once ouija
    house hot hero heron honeycomb hen herd historic horse-drawn hospital hotel hi-viz
    1 2 100 110 180 1800 sky t-shirt tv bmx dj st rvca suvari leda Uniform ünique
"""


@pytest.mark.parametrize("said", ARTICLES)
def test_an_article_fits_the_sound_of_the_next_word(said: str) -> None:
    assert [word for word in AN.split() if article(said, word) != "an"] == []
    assert [word for word in A.split() if article(said, word) != "a"] == []


@pytest.mark.parametrize("said", ARTICLES)
@pytest.mark.parametrize("following", ["", "a", "an", "слон", "'s", "-", "<unk>"])
def test_an_article_stays_where_the_sound_is_not_known(said: str, following: str) -> None:
    assert article(said, following) == said


def test_other_words_stay() -> None:
    words = ["the", "and", "ant", "as", "i", "A", ""]
    assert [article(word, "orange") for word in words] == words


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("giant panda", "a giant panda"),
        ("owl", "an owl"),
        ("unicorn", "a unicorn"),
        ("skis", "skis"),
        ("jeans", "jeans"),
        ("Christmas stocking", "a Christmas stocking"),
        ("christmas", "a christmas"),
        ("glass", "a glass"),
        ("furniture", "furniture"),
    ],
)
def test_a_name_with_its_article(name: str, whole: str) -> None:
    assert with_article(name) == whole
    assert stands_alone(name) is (name == whole)
