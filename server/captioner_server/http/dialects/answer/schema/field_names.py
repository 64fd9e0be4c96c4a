"""What the name of a field asks for: a caption, alt text, keywords or a confidence.

A name counts as a whole: one with a word that is not known, such as nsfw_confidence or license_plate_text,
asks for something else.
"""

from __future__ import annotations

import re


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


Words = tuple[str, ...]
"""The words of a name, in lower case; none for the answer itself."""

_HARMLESS = _set(
    """a ai an array auto automatic best brief common complete concise detailed detected en english final for
    full general generated image images img important in key line list long main meta new of one
    overall photo photograph photos pic picture pictures primary relevant scene search seo short
    simple single suggested the top visible visual your"""
)
"""What leaves the meaning of a name as it is."""
_CAPTION = _set(
    """answer caption captions desc description descriptions headline headlines output response result
    sentence sentences summaries summary title titles"""
)
_ALONE = ({"text"}, {"content"}, {"message"})
"""What asks for a caption only where nothing else is in the name: an image_text is what is written in it."""
_ALT = _set("alt alttext")
_ALT_WITH = _set("accessibility accessible alternative aria")
_ALT_WHAT = _set("attribute caption description label tag tags text texts")
_KEYWORDS = _set(
    """categories elements hashtag hashtags items keyword keywords label labels nouns objects subjects tag
    tags things topics words"""
)
_HASHTAGS = _set("hashtag hashtags")
_KEYWORD = _set(
    "category class item hashtag keyword label name noun object subject tag text thing title topic value word"
)
_CONFIDENCE = _set("certainty confidence probability")
_SCORE = _set("relevance score topicality")
_CONFIDENCE_WITH = _SCORE | {"level", "value"}
_SYNONYMS = _set("aliases synonyms")
_WHOLE = _set("analysis data details info information metadata properties record")
_LONGEST_NAME = 100


def words_of(name: str) -> Words:
    """The words in the name of a field: imageCaption and "Image caption" have two."""
    if len(name) > _LONGEST_NAME:
        return ("?",)
    return tuple(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", name))


def is_caption(words: Words) -> bool:
    """Whether it is a sentence about the photo, in any form."""
    if set(words) in _ALONE or is_alt_text(words):
        return True
    named = set(words[:-1] if words[-1:] == ("text",) else words)
    return bool(named & _CAPTION) and named <= _CAPTION | _HARMLESS | {"content"}


def is_alt_text(words: Words) -> bool:
    named = set(words)
    asked = named & _ALT or (named & _ALT_WITH and named & _ALT_WHAT)
    return bool(asked) and named <= _ALT | _ALT_WITH | _ALT_WHAT | _CAPTION | _HARMLESS


def is_keywords(words: Words) -> bool:
    """Whether it is a list of what is in the photo."""
    return bool(set(words) & _KEYWORDS) and set(words) <= _KEYWORDS | _HARMLESS


def is_hashtags(words: Words) -> bool:
    return is_keywords(words) and bool(set(words) & _HASHTAGS)


def is_keyword(words: Words) -> bool:
    """Whether it is the keyword of an entry in a list of them."""
    return bool(set(words) & _KEYWORD) and set(words) <= _KEYWORD | _HARMLESS


def is_confidence(words: Words, *, entry: bool) -> bool:
    """Whether it is the confidence of the caption, or in an `entry` that of its keyword. What a score is of
    needs to be said outside of entries: it may be for beauty."""
    named = set(words)
    of = (_KEYWORD | _KEYWORDS) - {"text"} if entry else _CAPTION
    asked = named & _CONFIDENCE or (named & _SCORE and (entry or named & of))
    return bool(asked) and named <= _CONFIDENCE | _CONFIDENCE_WITH | of | _HARMLESS


def is_synonyms(words: Words) -> bool:
    return bool(words) and set(words) <= _SYNONYMS


def is_whole(words: Words) -> bool:
    """Whether what is in a field of that name is about the photo as a whole, as in {"image": {"caption"}}."""
    return set(words) <= _HARMLESS | _CAPTION | _KEYWORDS | _WHOLE
