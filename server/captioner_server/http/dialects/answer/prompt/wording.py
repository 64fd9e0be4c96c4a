"""What a prompt asks for in words: a sentence, alt text, keywords, JSON.

Where it is not clear, a prompt asks for a sentence: labels and tags are often things in the photo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

_ANY_CASE = re.IGNORECASE
_REACH = 120
"""Characters around a word that say how it is meant."""
_MOST_OCCURRENCES = 100
"""How many occurrences of a word in a prompt are examined."""
_KEYWORDS = re.compile(r"\b(?:key[- ]?words?|hashtags?|tags|labels|categories)\b", _ANY_CASE)
_HASHTAGS = re.compile(r"\bhashtags?\b", _ANY_CASE)
_TAG_IT = re.compile(
    r"(?:^|[.;:!?\n])[\s\d)*-]*(?:please )?(?:tag|label|categori[sz]e|classify)\s+"
    r"(?:it|\w+ (?:image|photo|picture)s?)\b",
    _ANY_CASE,
)
_SENTENCE = re.compile(
    r"\b(?:descri(?:be|ptions?)|captions?|sentences?|titles?(?![- ]case)|summar(?:y|ies|i[sz]e)|headline"
    r"|paragraph)\b",
    _ANY_CASE,
)
_ALT_TEXT = re.compile(
    r"\balt(?:ernative)?[ -]?(?:texts?|tags?|attributes?|descriptions?)\b|\bscreen[ -]?readers?\b", _ANY_CASE
)
_JSON = re.compile(r"\bjson\b", _ANY_CASE)
_JSON_LIST = re.compile(r"\bjson[ -](?:array|list)\b", _ANY_CASE)

_NEGATED = re.compile(
    r"\b(?:no|not|never|without|avoid|omit|exclude|ignore|skip|don['’]t|instead of|rather than)\b"
    r"(?:(?!, (?:then )?(?:answer|give|output|reply|respond|return|use|write)\b).){0,60}$"
    r"|\b(?:if|when|unless)\b[^,]{0,40}\b(?:asks?|asked|told|requests?|requested|wants?)\b[^,]{0,20}$",
    _ANY_CASE,
)
"""Before a word: it is not wanted, or only spoken of."""
_UNWANTED = re.compile(
    r"\s+(?:(?:is|are)(?: not|n['’]t) (?:wanted|needed|allowed|required|necessary|welcome)"
    r"|(?:is|are) (?:unwanted|forbidden|prohibited|unnecessary)"
    r"|(?:should|must|need)(?: not|n['’]t) be )",
    _ANY_CASE,
)
"""After a word."""
_VERB = re.compile(
    r"\b(?:add|aim for|answer|append|assign|attach|choose|create|extract|generate|get|give|identify"
    r"|includ(?:e|ing)|list|need|output|pick|plus|predict|produce|propose|provide|reply|respond|return"
    r"|suggest|supply|tell me|want|what|which|write)\b",
    _ANY_CASE,
)
"""Before keywords that are asked for."""
_IN_THE_PHOTO = re.compile(
    r"\b(?:about|are|behind|do|does|existing|following|from|given|is|on|says?|that|these|those|wearing|written"
    r"|(?<!alt )(?<!alternative )texts?|(?<!list )(?<!set )(?<!series )of)\b"
    r"|\binclud(?:e|ing) (?:any|all|every|visible)\b",
    _ANY_CASE,
)
"""Before labels and tags that are things in the photo, or known already."""
_OF_A_THING = re.compile(
    r"(?:\b(?:alt|bottle|care|clothes|clothing|dog|ear|food|gift|html|img|luggage|meta|name|nutrition|price|product"
    r"|shipping|warning|xml)|>)[ -]*$",
    _ANY_CASE,
)
_STATED = re.compile(
    r"\s+(?:are|attached|can|has|have|is|must|on(?! (?:\w+ ){1,2}lines?\b)|say|should|will"
    r"|you (?:can )?see)\b",
    _ANY_CASE,
)
"""After labels and tags of which something is said."""
_FEW_WORDS = re.compile(
    r"\W*(?:(?!(?:count|explain|find|how|read|the|this|trans\w+|what|which)\b)[\w-]+\W+){0,3}",
    _ANY_CASE,
)
"""Before keywords that are all that a prompt has: "5 hashtags, please"."""
_BY = r"\b(?:with|using|in|as)\b"
_DESCRIBE_BY = re.compile(
    rf"[^,]{{0,60}}{_BY}(?:[ ,][\w-]+){{0,5}} (?:key[- ]?words|hashtags)"
    rf"|[^,]{{0,60}}{_BY}[^,]{{0,30}}(?:\d+|\blist of|\bonly|\bjust|-separated) (?:[\w-]+ ){{0,3}}"
    r"(?:tags|labels)",
    _ANY_CASE,
)
"""After "describe": keywords are the description."""
_DESCRIBING = re.compile(
    r"\b(?:key[- ]?words?|tags|labels|categories|words|terms|hashtags)\b.{0,30}\b(?:to|that|which|can|would)"
    r" (?:\w+ ){0,2}$",
    _ANY_CASE,
)
"""Before "describe" in words about keywords: "tags that best describe it"."""
_BETWEEN = {
    "; ": re.compile(
        r"(?<!not )\b(?:by|with|using) (?:an? )?semi-?colons?\b|\bsemi-?colon[- ](?:separated|delimited)\b"
        r"|\b(?:by|with) ['\"`(]*;",
        _ANY_CASE,
    ),
    "\n": re.compile(
        r"\bper line\b|\b(?:each|every)\b[^.;:!?\n]{0,40}\blines?\b|\b(?:separate|different) lines\b",
        _ANY_CASE,
    ),
}
"""What separates keywords, and how prompts ask for it."""


class _Occurrence(NamedTuple):
    """A word in a prompt, and what is before and after it in the same clause."""

    before: str
    word: str
    after: str
    begins: bool
    """Whether all of the clause before the word is there."""


def asks_for_keywords(prompt: str) -> bool:
    """Whether it wants keywords, labels or tags, alone or beside a sentence."""
    return any(map(_is_request, _wanted(_KEYWORDS, prompt))) or _TAG_IT.search(prompt) is not None


def asks_for_hashtags(prompt: str) -> bool:
    return any(map(_is_request, _wanted(_HASHTAGS, prompt)))


def separator_in(prompt: str) -> str | None:
    """What it wants between keywords, if it says so and wants no commas."""
    return next((between for between, asked in _BETWEEN.items() if asked.search(prompt)), None)


def asks_for_sentence(prompt: str) -> bool:
    """Whether it wants a caption, a description or something similar."""
    return any(
        not _DESCRIBING.search(one.before)
        and not (one.word.lower() == "describe" and _DESCRIBE_BY.match(one.after))
        for one in _wanted(_SENTENCE, prompt)
    )


def asks_for_alt_text(prompt: str) -> bool:
    return any(_wanted(_ALT_TEXT, prompt))


def asks_for_json(prompt: str) -> bool:
    return any(_wanted(_JSON, prompt))


def asks_for_json_list(prompt: str) -> bool:
    return any(_wanted(_JSON_LIST, prompt))


def _is_request(keywords: _Occurrence) -> bool:
    before = keywords.before
    if _OF_A_THING.search(before) or _STATED.match(keywords.after):
        return False
    for verb in _VERB.finditer(before):
        if not _IN_THE_PHOTO.search(before, verb.start()):
            return True
    if described := re.search(rf"\bdescribe\b(.*{_BY}.*)", before, _ANY_CASE):
        return _DESCRIBE_BY.match(described[1] + keywords.word) is not None
    return keywords.begins and _FEW_WORDS.fullmatch(before) is not None and not _IN_THE_PHOTO.search(before)


def _wanted(what: re.Pattern[str], prompt: str) -> Iterator[_Occurrence]:
    """Where a prompt names something, other than to say that it does not want it."""
    for match in islice(what.finditer(prompt), _MOST_OCCURRENCES):
        near = prompt[max(0, match.start() - _REACH) : match.start()]
        *rest, before = re.split(r"[.;:!?\n]", near)
        after = re.split(r"[.;:!?\n]", prompt[match.end() : match.end() + _REACH])[0]
        if not _NEGATED.search(before) and not _UNWANTED.match(after):
            yield _Occurrence(before, match[0], after, bool(rest) or match.start() <= _REACH)
