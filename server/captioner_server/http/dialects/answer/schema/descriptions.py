"""Descriptions of fields that ask for what is never known, such as a number or the text in the photo."""

from __future__ import annotations

import re
from typing import Any

from captioner_server.http.dialects.answer.prompt.wording import asks_for_alt_text, asks_for_sentence

_ANY_CASE = re.IGNORECASE
MOST_READ = 500
"""Characters of a description that are read."""
_PHOTO = r"(?:image|photo|picture|document|page|receipt|screenshot|scan|sign|label)"
_NUMBER = r"\bhow many\b|(?<!\ba )\b(?:number|count) of (?!words|characters|letters)|^\W*\d+\W*$"
_YES_NO = (
    r"\byes ?(?:/|\||or|,) ?no\b|\btrue ?(?:/|\||or) ?false\b|^\W*whether\b|^\W*(?:yes|no|true|false)\W*$"
    r"|^\W*(?:is|are|was|were|does|do|did|has|have|can)\b.*\?"
)
_WRITTEN = (
    rf"\bocr\b|\btranscri(?:be|pt|ption)\b|\bverbatim\b|\btext (?:in|on|from|of) (?:\w+ ){{0,2}}{_PHOTO}\b"
    r"|\btext (?:that is |which is )?(?:visible|seen|found|shown|written|printed|extracted|recogni[sz]ed)\b"
    r"|\b(?:visible|written|printed|extracted|recogni[sz]ed|handwritten) text\b"
    r"|\blicen[cs]e plate(?: number)?\W*$"
)
_NOT_KNOWN = re.compile(f"{_NUMBER}|{_YES_NO}|{_WRITTEN}", _ANY_CASE)
_BEGINS = re.compile(rf"\W*(?:\w+\W+){{0,2}}?(?:{_NUMBER}|{_YES_NO}|{_WRITTEN})", _ANY_CASE)
"""At the beginning of an example that is a description: captions may have the same words further on."""


def asks_for_unknown(description: Any) -> bool:
    """Whether it asks for a number, yes or no, or the text in the photo, and for no sentence about it."""
    if not isinstance(description, str):
        return False
    text = description[:MOST_READ]
    return bool(_NOT_KNOWN.search(text)) and not (asks_for_sentence(text) or asks_for_alt_text(text))


def begins_with_unknown(text: str) -> bool:
    """Whether a text begins by asking for that: then it describes a value, and is no example of one."""
    return _BEGINS.match(text) is not None
