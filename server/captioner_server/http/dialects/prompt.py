"""What a prompt asks for: a caption, alt text, keywords, or JSON of some shape."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

_KEYWORDS = re.compile(r"\b(?:keywords?|labels?|(?:hash)?tags?|categories)\b", re.IGNORECASE)
_DESCRIBE = re.compile(r"\bdescri(?:be|ption)\b", re.IGNORECASE)
_MENTIONED = re.compile(r"\b(?:an?|the|this|these|to)\s+$", re.IGNORECASE)
"""Before a word that a description is about or for: "describe the labels", "describe it for a label"."""
_ALT_TEXT = re.compile(
    r"\balt(?:ernative)?[ -]?(?:texts?|tags?|attributes?|descriptions?)\b|\bscreen[ -]?readers?\b",
    re.IGNORECASE,
)
_JSON = re.compile(r"\bjson\b", re.IGNORECASE)
_JSON_LIST = re.compile(r"\bjson[ -](?:array|list)\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(?:no|not|never|without|avoid|omit|exclude|skip|don['’]t|instead of)\b[^.;:!?\n]{0,60}$",
    re.IGNORECASE,
)
_REACH = 80
"""Characters before a word in which its negation begins."""
_MOST_MENTIONS = 100
"""Of a word in a prompt, that are looked at."""
_MOST_SHAPES = 8
"""Beginnings of JSON in a prompt that are tried."""


def asks_for_keywords(prompt: str) -> bool:
    """Whether it wants keywords, labels or tags rather than a sentence."""
    return _mentions(_KEYWORDS, prompt, _MENTIONED if _DESCRIBE.search(prompt) else None)


def asks_for_alt_text(prompt: str) -> bool:
    return _mentions(_ALT_TEXT, prompt)


def asks_for_json(prompt: str) -> bool:
    return _mentions(_JSON, prompt)


def asks_for_json_list(prompt: str) -> bool:
    return _mentions(_JSON_LIST, prompt)


def shape_in(prompt: str) -> Any:
    """The largest JSON object or list in a prompt, which is an example of the answer or its schema; None if
    there is none."""
    decoder = json.JSONDecoder()
    best, longest, after = None, 2, 0
    for _ in range(_MOST_SHAPES):
        begin = re.compile(r"[{\[]").search(prompt, after)
        if begin is None:
            break
        try:
            found, after = decoder.raw_decode(prompt, begin.start())
        except (ValueError, RecursionError):
            after = begin.end()
            continue
        if after - begin.start() > longest:
            best, longest = found, after - begin.start()
    return best


def _mentions(what: re.Pattern[str], prompt: str, unless: re.Pattern[str] | None = None) -> bool:
    """Whether a prompt names something, other than to say that it does not want it, or after `unless`."""
    places = (match.start() for match in islice(what.finditer(prompt), _MOST_MENTIONS))
    excuses = (_NEGATION,) if unless is None else (_NEGATION, unless)
    return any(
        not any(excuse.search(prompt, max(0, place - _REACH), place) for excuse in excuses)
        for place in places
    )
