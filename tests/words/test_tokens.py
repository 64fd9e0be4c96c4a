"""Texts are split into words in every script that writes them apart."""

from __future__ import annotations

import pytest

from captioner.words.tokens import find_unspaced, lowered, tokenize


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man’s t-shirt, 2 dogs (wet).", ["a", "man's", "t-shirt", "2", "dogs", "wet"]),
        ("un nin\u0303o", ["un", "ni\u00f1o"]),
        ("एक बिल्ली मेज पर बैठी है।", ["एक", "बिल्ली", "मेज", "पर", "बैठी", "है"]),
        ("ஒரு பூனை மேசையில்", ["ஒரு", "பூனை", "மேசையில்"]),
        ("نِشانه یک گُربه", ["نِشانه", "یک", "گُربه"]),
        ("می\u200cروم", ["می\u200cروم"]),
        ("ශ්\u200dරී a\u200cb c\u200d", ["ශ්\u200dරී", "ab", "c"]),
        ("고양이가 테이블 위에", ["고양이가", "테이블", "위에"]),
        ("كلـــب ـ", ["كلب"]),
        ("sun ☀️ ❤️ 1️⃣ 1", ["sun", "1", "1"]),
        ("3.5 mm, 1,5 kg, 10:30. 1/2, 4x4", ["3.5", "mm", "1,5", "kg", "10:30", "1/2", "4x4"]),
        ("١٫٥ dogs.2 cats", ["١٫٥", "dogs", "2", "cats"]),
        ("Işıklı ISPARTA", ["ışıklı", "ısparta"]),
        ("Irmak, dag\u0306 ve I\u0307Kİ", ["ırmak", "dağ", "ve", "iki"]),
        ("мʼяч l´homme", ["м'яч", "l'homme"]),
        ("İki kız I\u0307stanbul’da", ["iki", "kız", "istanbul'da"]),
    ],
)
def test_a_word_keeps_its_marks(text: str, words: list[str]) -> None:
    assert tokenize(text) == words


@pytest.mark.parametrize(
    "text", ["一只猫坐在桌子上", "骑师骑着马", "テーブルの上の猫", "แมวนั่งอยู่บนโต๊ะ", "ឆ្មាអង្គុយលើតុនៅក្នុងផ្ទះ"]
)
def test_sentences_without_spaces_are_found(text: str) -> None:
    assert find_unspaced([text, "a cat"]) == text


@pytest.mark.parametrize(
    "text",
    [
        "a cat",
        "",
        "一只 猫 坐 在 桌子 上",
        "ショッピングセンター の 前 の 猫",
        "แมว นั่ง อยู่ บน โต๊ะ",
        "고양이가 테이블 위에",
    ],
)
def test_words_written_apart_are_fine(text: str) -> None:
    assert find_unspaced([text]) is None


def test_hyphens_of_word_processors_are_the_usual_ones_and_soft_ones_none() -> None:
    text = "An auto\u00admobile, a t\u2011shirt, a t\u2010shirt, a\u2060b \u00ad \u2011"
    assert tokenize(text) == ["an", "automobile", "a", "t-shirt", "a", "t-shirt", "ab"]
    assert lowered("Auto\u00admobile") == "automobile"


def test_a_few_foreign_names_are_no_sentences() -> None:
    assert find_unspaced([*["a cat"] * 10, "a sign that says 一只猫坐在桌子上"]) is None
