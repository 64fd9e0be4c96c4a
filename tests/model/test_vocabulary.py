"""The words that a model knows."""

from __future__ import annotations

import pytest

from captioner.model.vocabulary import SPECIAL, Vocabulary

KNOWN = Vocabulary([*SPECIAL, "knife", "knives", "bus", "buses", "berry", "berries", "leaf", "leaves", "cat"])


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("Knife", {"knife", "knives"}),
        ("bus", {"bus", "buses"}),
        ("berry", {"berry", "berries"}),
        ("leaf", {"leaf", "leaves"}),
        ("cat", {"cat"}),
        ("dog", set()),
        ("<end>", set()),
    ],
)
def test_forms_of_a_word(word: str, forms: set[str]) -> None:
    assert {KNOWN.words[number] for number in KNOWN.forms(word)} == forms
