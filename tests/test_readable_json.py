"""JSON in the characters of its texts."""

from __future__ import annotations

import json

import pytest
from support.captions import HOSTILE_TEXTS

from captioner.readable_json import dump_json


@pytest.mark.parametrize("text", ["Größe 猫 🐈 हिन्दी e\u0301", "می\u200cرود क्\u200dया"])
def test_letters_are_written_as_they_are(text) -> None:
    assert dump_json({text: [text]}) == f'{{"{text}": ["{text}"]}}'


@pytest.mark.parametrize(
    "text",
    [
        "a\u2028b\u2029c\x85d\0\n",
        "\ud800 \udce9",
        "\x9b31m",
        "a\u202egpj.exe",
        "\U000e0041\u200b",
        *HOSTILE_TEXTS,
    ],
)
def test_what_would_be_lost_or_misread_is_escaped(text) -> None:
    written = dump_json([text, "ü"])
    assert json.loads(written.encode()) == [text, "ü"]
    assert len(written.splitlines()) == 1
    assert not set(written) & set("\x85\x9b\u2028\u2029\u202e\u200b\U000e0041")
