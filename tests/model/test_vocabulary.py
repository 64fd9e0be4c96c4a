"""The words that a model knows."""

from __future__ import annotations

import pytest

from captioner.model.vocabulary import SPECIAL, Vocabulary

WORDS = (
    "knife knives bus buss buses berry berrys berries leaf leaves cat child children snowman snowmen people "
    "l'homme"
)
KNOWN = Vocabulary([*SPECIAL, *WORDS.split()])


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("Knife", {"knife", "knives"}),
        ("bus", {"bus", "buses"}),
        ("berry", {"berry", "berries"}),
        ("leaf", {"leaf", "leaves"}),
        ("cat", {"cat"}),
        ("child", {"child", "children"}),
        ("snowman", {"snowman", "snowmen"}),
        ("person", {"people"}),
        ("L’homme", {"l'homme"}),
        ("dog", set()),
        ("<end>", set()),
    ],
)
def test_forms_of_a_word(word: str, forms: set[str]) -> None:
    assert {KNOWN.words[number] for number in KNOWN.forms(word)} == forms


def test_words_that_no_bundle_can_hold_are_left_out() -> None:
    longest = "a" * 100
    assert Vocabulary.build([f"{longest} {longest}a dog"], 1).words == (*SPECIAL, longest, "dog")
