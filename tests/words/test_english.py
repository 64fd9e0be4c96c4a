"""What is known of English."""

from __future__ import annotations

import pytest

from captioner.words.english import language_of_captions

ENGLISH = ["a dog runs on the grass", "a café in La Paz", "a sign that reads π"] + [
    "two men play frisbee"
] * 9


@pytest.mark.parametrize(
    ("captions", "language"),
    [
        ([], "en"),
        (ENGLISH, "en"),
        ([*ENGLISH, "ein hund auf dem gras"], ""),
        (["ein hund auf dem gras", "hund rennt"], ""),
        (["猫 が 眠る"], ""),
        (["собака бежит"], ""),
        (["कुत्ता दौड़ता है"], ""),
        (["a dog “runs” – fast…", "Ａ"], ""),
    ],
)
def test_the_language_of_captions_is_english_or_unknown(captions, language) -> None:
    assert language_of_captions(captions) == language
