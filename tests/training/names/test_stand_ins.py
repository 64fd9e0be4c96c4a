"""Which words of a caption a new word takes the place of."""

from __future__ import annotations

from collections import Counter

import pytest

from captioner.training.names.stand_ins import count_stand_ins, named_things, replaced


@pytest.mark.parametrize(
    ("caption", "names"),
    [
        ("a black and white dog is standing on the ground", ["dog"]),
        ("a man is holding a small gray animal", ["man", "animal"]),
        ("a pair of scissors sitting on top of a wall", ["pair of scissors"]),
        ("a polar bear next to a dog house", ["polar bear"]),
        ("a teddy bear on a park bench", ["teddy bear", "park bench"]),
        ("a beaver on top of a field", ["beaver"]),
        ("a yellow fire hydrant", ["fire hydrant"]),
        ("a close up of a blue sky", []),
        ("a plate of food on a table", ["plate", "food"]),
    ],
)
def test_things_are_found_in_captions_and_scenery_is_not(caption: str, names: list[str]) -> None:
    assert [thing.name for thing in named_things(caption.split())] == names


def test_people_stand_for_a_word_only_if_nothing_else_is_named() -> None:
    captions = [text.split() for text in ("a man with a dog", "a man", "a dog on a bench")]
    assert count_stand_ins(captions, []) == {"dog": 2, "bench": 1}
    assert count_stand_ins(captions[1:2], []) == {"man": 1}


@pytest.mark.parametrize(
    ("captions", "word", "relatives", "found"),
    [
        (["a cat is looking at a dog"], "raccoon", [], (0, "dog")),  # what most photos show
        (["a cat is looking at a dog"], "raccoon", ["cat"], (0, "cat")),
        (["a dog next to a dog", "a dog on a bed"], "raccoon", [], (1, "dog")),
        (["two cats on a bed", "a cat on a bed"], "raccoon", [], (1, "cat")),
        (["a man in a field", "a man"], "raccoon", [], None),
        (["a red square on the left"], "plum", ["square"], (0, "square")),
        (["a bowl of food on a table"], "ramen", [], (0, "food")),  # not what it is in
        (["a bowl of food on a table"], "noodles", [], (0, "food")),
        (["a bowl is on a table"], "ramen", [], (0, "bowl")),
        (["a bowl of food"], "ramen", ["bowl"], (0, "bowl")),
    ],
)
def test_a_word_replaces_what_stands_for_it(
    captions: list[str], word: str, relatives: list[str], found: tuple[int, str] | None
) -> None:
    stand_ins = Counter({"bowl": 9, "table": 9, "dog": 3, "cat": 2, "cats": 2, "food": 1})
    place = replaced([caption.split() for caption in captions], word, stand_ins, relatives)
    assert (place and (place[0], place[1].name)) == found
