"""Keywords of captions."""

from __future__ import annotations

import pytest

from captioner.words.keywords import hierarchy_of, keywords_of


@pytest.mark.parametrize(
    ("caption", "keywords"),
    [
        ("Two cats are sitting on top of a large green couch.", ["cat", "couch"]),
        ("A group of people in front of a train, next to the side of a road", ["person", "train", "road"]),
        ("a man talking on a cell phone by a stop sign", ["man", "cell phone", "stop sign"]),
        ("a tall building with a clock on the side", ["building", "clock"]),
        ("a bowl filled with lots of food in the air", ["bowl", "food"]),
        ("glasses of wine and slices of pizza", ["wine glass", "pizza"]),
        ("a pair of skis and scissors", ["skis", "scissors"]),
        ("a roll of toilet paper", ["toilet paper"]),
        ("a guinea pig next to great white sharks", ["guinea pig", "great white shark"]),
        ("a small tanuki in the grass", ["tanuki", "grass"]),  # a word that somebody taught
        ("a dog with a frisbee in its mouth", ["dog", "frisbee"]),
        ("", []),
        ("deux chats dans un four et la chair", []),
        ("ein boot und ein rock", []),
        ("en man på ett berg", []),
        ("a man with an orange helmet", ["man", "helmet"]),
        ("an orange and white cat next to an orange cat", ["cat"]),
        ("a woman in orange holding a rose", ["woman", "rose"]),
        ("a man wearing a peach tie and a rose shirt", ["man", "tie", "shirt"]),
        ("a large orange and an adult", ["orange", "adult"]),
        ("an orange on a table", ["orange", "table"]),
        ("a bowl of oranges", ["bowl", "orange"]),
        ("orange slices on a plate", ["orange", "plate"]),
        ("an orange inside a glass", ["orange", "glass"]),
        ("a rose growing in a pot", ["rose", "pot"]),
        ("a rose", ["rose"]),
        ("a lavender and white house with a man in salmon", ["house", "man"]),
        ("a woman in teal with a salmon on a plate", ["woman", "salmon", "plate"]),
        ("an orange tanuki by an olive", ["tanuki", "olive"]),
    ],
)
def test_keywords_name_what_is_to_be_seen(caption: str, keywords: list[str]) -> None:
    assert keywords_of(caption) == keywords


@pytest.mark.parametrize(
    ("keyword", "path"),
    [
        ("dalmatian", ["animal", "dog", "dalmatian"]),
        ("puppy", ["animal", "dog", "puppy"]),
        ("surfer", ["person", "surfer"]),
        ("great white shark", ["animal", "fish", "shark", "great white shark"]),
        ("beach", ["landscape", "beach"]),
        ("tanuki", ["tanuki"]),
    ],
)
def test_what_a_keyword_is_a_kind_of(keyword: str, path: list[str]) -> None:
    assert hierarchy_of(keyword) == path
