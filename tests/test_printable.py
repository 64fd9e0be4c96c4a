"""Text from others on a terminal, in a picture or on a page."""

from __future__ import annotations

import pytest
from support.captions import HOSTILE_TEXTS

from captioner.printable import clean, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc\rd", r"a\tb\nc\rd"),
        ("\x1b]0;x\x07", r"\x1b]0;x\x07"),
        ("a\u202egpj.exe", r"a\u202egpj.exe"),
        ("a\u2066b\u2069\u200b\u200d\u2060\ufeff", r"a\u2066b\u2069\u200b\u200d\u2060\ufeff"),
        ("a\u2028b\x85\xad", r"a\u2028b\x85\xad"),
        ("\U000e0041\u3164\ufe0f\u034f", r"\U000e0041\u3164\ufe0f\u034f"),
        ("\x9b31m \udc9b31m \udce9", "\\x9b31m \\x9b31m \udce9"),
        ("a\u200cb a\u200d", r"a\u200cb a\u200d"),
        ("می\u200cرود क्\u200dया ශ්\u200dරී র\u200d্যাব", "می\u200cرود क्\u200dया ශ්\u200dරී র\u200d্যাব"),
        ("ünï 猫 🐈 हिन्दी e\u0301", "ünï 猫 🐈 हिन्दी e\u0301"),
    ],
)
def test_what_a_terminal_does_not_show_as_itself_is_escaped(text, shown) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_clean_text_is_one_line_that_can_be_written(text) -> None:
    cleaned = clean(text)
    assert cleaned.encode("utf-8")
    assert not set(cleaned) & set("\n\t\r\0\x1b\u202e")
