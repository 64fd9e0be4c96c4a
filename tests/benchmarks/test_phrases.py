"""Phrases that a model says out of habit."""

from __future__ import annotations

from benchmarks.phrases import excess

PEOPLE = [text.split() for text in ["a dog in the grass", "a cat on a sofa", "a red bus"] * 40]


def test_phrases_that_people_do_not_say_are_found_once() -> None:
    """The longer phrases around "grass next" say no more than it does; "a dog" is said by people, too."""
    captions = [text.split() for text in ["a dog in the grass next to a field", "a cat on a sofa"]]
    found = {phrase: (model, people) for phrase, model, people in excess(captions, PEOPLE, 0.1, 40)}
    assert found == dict.fromkeys(("grass next", "next to", "to a", "a field"), (0.5, 0.0))


def test_phrases_of_few_captions_are_left_out() -> None:
    captions = [["a", "red", "bus"]] * 99 + [["a", "blue", "bus"]]
    assert not [*excess(captions, PEOPLE, 0.02, 40)]
