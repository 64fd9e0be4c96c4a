"""English articles by the sound of the next word: "an orange", "an hour", "a uniform".

A model learns "a" far more often than "an", and chooses it before it knows the next word.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import zip_longest

from captioner.results import Word

ENGLISH = "en"
"""The `language` in the bundle.json of models whose articles are corrected."""
ARTICLES = ("a", "an")

# "Use a before consonant sounds and an before vowel sounds" is the rule of the Chicago Manual of Style. The
# exceptions from spelling are those in captions of COCO and Flickr and names of ImageNet, and their kin.
_VOWEL_SOUND = re.compile(
    r"""
    (?! eu | ewe | u\b | u[kv] | us[aeiu] | us\b | usb\b | usps\b | ups\b | ufo | ubiq | ugand  # as "you"
      | uni(?!de|ll|m|n|ro|ss) | unanim | ur[aeiou] | ut[aeio]
      | one(?:s|self)?\b | once\b | ouija                                                    # as "won"
    ) [aeiou]
    | hour | honest | honou?r | heir | hors\b
    | 8 | 1[18](?!\d)                                                       # eight, eleven, eighteen
    | [fhlmnrsx]\b | (?:hd|hdtv|lcd|led|mlb|mp3|mri|nba|nfl|nhl|rv|suv|xbox)s?\b   # letters: x-ray
    """,
    re.VERBOSE,
)


def language_of(words: Container[str]) -> str | None:
    """The language of a vocabulary, if it is known to be English."""
    return ENGLISH if all(word in words for word in (*ARTICLES, "the")) else None


def article(said: str, following: str) -> str:
    """The word `said`, or the article that it should be before the word `following` ("" at the end)."""
    if said not in ARTICLES or following in ARTICLES:
        return said
    # Without accents: "éclair" sounds as it starts.
    plain = unicodedata.normalize("NFD", following.lower())
    if not re.match("[a-z0-9]", plain):
        return said
    return "an" if _VOWEL_SOUND.match(plain) else "a"


def corrected(words: Sequence[str]) -> list[str]:
    """The words of a caption with the right articles."""
    return [article(*pair) for pair in zip_longest(words, words[1:], fillvalue="")]


def settled(words: Iterable[Word]) -> Iterator[Word]:
    """The same for words that are being chosen: an article comes when the next word is known."""
    held: Word | None = None
    for word in words:
        if held is not None:
            yield dataclasses.replace(held, text=article(held.text, word.text))
        held = word if word.text in ARTICLES else None
        if held is None:
            yield word
    if held is not None:
        yield held
