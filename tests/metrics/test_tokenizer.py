"""The treebank tokenizer against what Stanford's gave, stored in tests/data/metrics/expected.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.metrics import tokenize

EXPECTED = json.loads((Path(__file__).parents[1] / "data/metrics/expected.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("text", "tokens"), EXPECTED["tokens"].items())
def test_splits_as_stanford_does(text: str, tokens: str) -> None:
    assert tokenize(text) == tokens.split()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ""),
        (" . ", ""),
        ("...!", ""),
        ("“quoted” ‘words’", "quoted words"),
        ("don’t", "do n't"),
        ("cannot", "can not"),
    ],
)
def test_marks_and_quotes(text: str, tokens: str) -> None:
    assert tokenize(text) == tokens.split()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a dog\N{DOG FACE}.", "a dog"),
        ("\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16} dogs", "\N{HEAVY BLACK HEART} dogs"),
        ("\N{BYTE ORDER MARK}a \N{RIGHT-TO-LEFT EMBEDDING}dog\N{POP DIRECTIONAL FORMATTING}", "a dog"),
        ("zero\N{ZERO WIDTH SPACE}width", "zero width"),
        ("soft\N{SOFT HYPHEN}hyphen", "softhyphen"),
        ("a \ud83d dog", "a dog"),
    ],
)
def test_what_stanford_does_not_know_is_dropped(text: str, tokens: str) -> None:
    assert tokenize(text) == tokens.split()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("एक बिल्ली मेज पर बैठी है।", "एक बिल्ली मेज पर बैठी है"),
        ("ஒரு பூனை மேசையில்", "ஒரு பூனை மேசையில்"),
        ("¿un nin\u0303o?", "un ni\u00f1o"),
        ("an e\u2011mail, كلـــب", "an e-mail كلب"),
        ("Irmak kıyısı", "ırmak kıyısı"),
        ("l´homme", "l'homme"),
        ("İki kız I\u0307stanbul’da", "iki kız istanbul da"),
    ],
)
def test_words_of_other_scripts_keep_their_marks(text: str, tokens: str) -> None:
    assert tokenize(text) == tokens.split()


@pytest.mark.parametrize(
    "text",
    ["ایک بلی میز پر ہے۔", "一只 猫 （ 黑色 ） 「 在 」 桌子 上 。", "ውሻ ነው ።", "կատու է ։", "ကြောင် ။"],
)
def test_marks_of_other_scripts_are_dropped(text: str) -> None:
    assert [word for word in tokenize(text) if not any(map(str.isalpha, word))] == []


@given(st.text())
def test_takes_any_text(text: str) -> None:
    assert all(token and not token.isspace() for token in tokenize(text))


@given(st.lists(st.sampled_from(["a", "dog", "runs", "man's", "t-shirt", "U.S."]), min_size=1))
def test_tokens_of_plain_captions_stay_as_they_are(words: list[str]) -> None:
    once = tokenize(" ".join(words))
    assert tokenize(" ".join(once)) == once
