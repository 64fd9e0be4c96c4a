"""Captions as alt text for screen readers.

Alt text starts with the content, not with "a photo of". It is one short sentence, because listeners cannot
skim it, and does not guess the gender of people. Captions in other languages keep their words: "man" and
"her" mean other things in German.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import regex

from captioner.words.english import NEUTRAL, NOT_ENGLISH, UNFINISHED, is_foreign

MAX_LENGTH = 125
"""Characters, the full stop included; some screen readers break longer texts."""

_OPENING = re.compile(
    r"(?:there (?:is|are)|this is|(?:an? |the )?(?:(?:black and white|colou?r|blurry|close|closeup) )*"
    r"(?:photo|photograph|picture|image|view|shot|close[- ]up|up|closeup) (?:of|showing))\s+",
    re.IGNORECASE,
)
"""Openings without content: "a photo of a dog", "there is a dog", "a close up of a dog"."""
_GENDERED = re.compile(rf"\b(?:{'|'.join(sorted(NEUTRAL, key=len, reverse=True))})\b", re.IGNORECASE)
_HERS = re.compile(
    r"\bher(?=$|[.,]|\s+(?:in|on|at|with|while|from|to|by|near|and|as|up|down|off)\b)", re.IGNORECASE
)
"""The pronoun that is no possessive: at the end, or before a word that names nothing."""
_PAIRS = tuple(
    (re.compile(rf"\b(?:{pair})\b"), together)
    for one, many in (("person", "people"), ("child", "children"))
    for pair, together in (
        (f"a {one} and (?:a )?{one}", f"two {many}"),
        (f"two {many} and a {one}|a {one} and two {many}", f"three {many}"),
        (f"{many} and {many}", many),
    )
)
_SEVERAL = re.compile(r"\ban? (?=(?:(?!few )\w+ )?(?:people|children)\b)")
"""An article before several, which a model that says "a women" leaves behind."""
_DANGLING = re.compile(rf"(?:\s+(?:{'|'.join((*UNFINISHED, 'on', 'by', 'over', 'next'))}))+$")

_STOPS = {
    r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}ー]$": "。",
    r"[\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Oriya}]$": "।",
    r"\p{Script=Armenian}$": "։",
    r"\p{Script=Ethiopic}$": "።",
    r"\p{Script=Khmer}$": "។",
    r"\p{Script=Myanmar}$": "။",
    r"[\p{Script=Thai}\p{Script=Lao}]$": "",
    r"[\p{L}\p{M}\p{N}]$": ".",
}
"""The full stops after texts that end so; the first pattern that matches counts."""

_DOTTED = re.compile("[ığ]")
"""Letters of Turkish and its kin, in which the capital of "i" is "İ"."""


def without_opening(text: str) -> str:
    """A caption without openings such as "there is" and "a photo of"."""
    while (opening := _OPENING.match(text)) and opening.end() < len(text):
        text = text[opening.end() :]
    return text


def alt_text(caption: str) -> str:
    """A caption as alt text of at most `MAX_LENGTH` characters."""
    text = " ".join(without_opening(caption).split())
    if not is_foreign(text):
        text = _neutral(text)
    text = text.rstrip(". ")
    if len(text) >= MAX_LENGTH:
        text = _DANGLING.sub("", text[: MAX_LENGTH - 1].rpartition(" ")[0] or text[: MAX_LENGTH - 1])
    return sentence(text)


def neutral_keywords(keywords: Iterable[str]) -> list[str]:
    """Keywords that do not tell the gender of people, each once."""
    return list(dict.fromkeys(NEUTRAL.get(keyword, keyword) for keyword in keywords))


def sentence(text: str) -> str:
    """A text with a capital and the full stop of its script, unless it ends with punctuation."""
    stop = next((stop for ending, stop in _STOPS.items() if regex.search(ending, text)), "")
    return f"{capitalized(text)}{stop}"


def capitalized(text: str) -> str:
    """A text with a capital, where its script begins sentences with one (Georgian does not)."""
    first = "İ" if text.startswith("i") and _DOTTED.search(text) else text[:1].title()
    return f"{first}{text[1:]}"


def _neutral(text: str) -> str:
    """English text that does not tell the gender of people."""
    text = _HERS.sub("them", text)
    text = _GENDERED.sub(lambda found: NEUTRAL.get(found[0].lower(), found[0]), text)
    for pair, both in _PAIRS:
        text = pair.sub(both, text)
    return _SEVERAL.sub("", text)


def alt_text_rules() -> dict[str, Any]:
    """The rules of `alt_text` as JSON, with patterns that Python and JavaScript read alike."""
    return {
        "opening": _OPENING.pattern,
        "foreign": NOT_ENGLISH,
        "neutral": NEUTRAL,
        "hers": _HERS.pattern,
        "pairs": [[pair.pattern, together] for pair, together in (*_PAIRS, (_SEVERAL, ""))],
        "dangling": _DANGLING.pattern,
        "stops": [*_STOPS.items()],
        "dotted": _DOTTED.pattern,
        "longest": MAX_LENGTH,
    }
