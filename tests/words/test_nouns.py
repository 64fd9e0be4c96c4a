"""Nouns that take no article, after one."""

from __future__ import annotations

import pytest

from captioner.words.nouns import agreed


def fitting(text: str) -> str:
    return " ".join(agreed(text.split()))


@pytest.mark.parametrize(
    ("said", "people_say"),
    [
        ("a scissors on a table", "some scissors on a table"),
        ("a table with a milk", "a table with some milk"),
        ("a cup with a coffee on it", "a cup with some coffee on it"),
        ("a man with a blue jeans", "a man with some blue jeans"),
        ("a glass of wine and a broccoli", "a glass of wine and some broccoli"),
        ("a binoculars and an orange", "some binoculars and an orange"),
        ("a scissors a elephant", "some scissors an elephant"),
        ("a shoes sitting on a street", "some shoes sitting on a street"),
        ("a boots is on a floor", "some boots are on a floor"),
        ("an umbrellas", "some umbrellas"),
        ("a women wearing an hat", "a woman wearing a hat"),
        ("an young men with a old women", "a young man with an old woman"),
        ("a girls is jumping", "a girl is jumping"),
        ("a people walking on a beach", "some people walking on a beach"),
        ("a cattle in a field", "some cattle in a field"),
    ],
)
def test_nouns_without_an_article(said: str, people_say: str) -> None:
    assert fitting(said) == people_say
    assert fitting(people_say) == people_say


@pytest.mark.parametrize(
    "text",
    """a woman drinks milk in a coffee shop
    leute warten an der haltestelle
    a scissors lift and a sports car
    a police officer and a women's shoe
    a snow covered hill behind a snow covered tree
    a wine tasting and a water squirting toy
    a trash can on a dirt and grass road
    a man gives a thumbs up
    an orange sits on a table
    a dog runs through a field and a boy leaps over a fence
    a glass on a bus
    a sheep and a fish and a series of waves
    an old man with some scissors and the milk
    two women and some men
    a photo of jeans
    a man in a los angeles shirt""".splitlines(),
)
def test_what_people_say_stays(text: str) -> None:
    assert fitting(text) == text.strip()
