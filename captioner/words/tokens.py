"""The words of a text."""

from __future__ import annotations

import re

# A word is letters and digits with inner apostrophes or hyphens kept ("t-shirt", "man's").
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


def tokenize(text: str) -> list[str]:
    """The lower-cased words of a caption without punctuation, as used in training."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]
