"""METEOR's tokenization, which is finer than the treebank's.

With `-norm`, as in the COCO caption evaluation, METEOR splits its tokens again:
"t-shirt" is two words, "'s" is an apostrophe and an s, "u.s." is "us".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LETTER = "A-Za-zŠŽšžŸÀ-ÖØ-öø-ž"
_ALNUM = f"0-9{_LETTER}"

_STEPS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (rf"([^{_ALNUM}\s.'`,\-‘’])", r" \1 "),
        (r"([^0-9]),([^0-9])", r"\1 , \2"),
        (r"([0-9]),([^0-9])", r"\1 , \2"),
        (r"([^0-9]),([0-9])", r"\1 , \2"),
        (r"[`‘’]", "'"),
        (r"--", "-"),
        # Each match uses up its letters, so that "x-y-z" keeps its second hyphen.
        (rf"([{_ALNUM}.])-([{_ALNUM}])", r"\1 \2"),
        (rf"([^{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
        (rf"([^{_LETTER}0-9])'([{_LETTER}])", r"\1 ' \2"),
        (rf"([{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
        (rf"([{_LETTER}])'([{_LETTER}])", r"\1 '\2"),
        (r"([0-9])'(s)", r"\1 '\2"),
    ]
]
# Lower-case words that keep their period whatever follows, and those that keep it before a number.
_KEEP_PERIOD = frozenset(["v", "vs", "rev"])
_KEEP_PERIOD_BEFORE_NUMBER = frozenset(["pp"])


def normalize(tokens: Sequence[str]) -> list[str]:
    """Split lower-cased treebank tokens into METEOR's words."""
    text = f" {' '.join(tokens)} "
    for pattern, replacement in _STEPS:
        text = pattern.sub(replacement, text)
    words = text.split()
    following = [*words[1:], ""]
    return [part for word, after in zip(words, following, strict=False) for part in _period(word, after)]


def _period(word: str, after: str) -> list[str]:
    """Decide whether the period at the end of a word is part of it."""
    stem = word[:-1]
    if not stem or not word.endswith("."):
        return [word]
    if "." in stem and re.search(f"[{_LETTER}]", stem):
        return [word.replace(".", "")]
    if stem in _KEEP_PERIOD or re.match("[a-z]", after):
        return [word]
    if stem in _KEEP_PERIOD_BEFORE_NUMBER and re.match("[0-9]", after):
        return [word]
    return [stem, "."]
