"""An index of captions by their words, and the ranking of what it finds.

The ranking is BM25 (Robertson and Zaragoza 2009) over bases of words, in which a kind of what is searched
for ("puppy" for "dog") and the words of the model's other captions count less than the word itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from captioner.retrieval.query import Query, without_accents
from captioner.words.forms import base, joined, kinds
from captioner.words.tokens import is_undivided, join_undivided, tokenize

_KIND_WEIGHT, _OTHER_WEIGHT = 0.6, 0.5
_LENGTH_SHARE = 0.4
"""How much a long caption must have more of the words than a short one, 0 to 1 (b of BM25)."""


@dataclass(frozen=True, slots=True)
class CaptionText:
    """What is known of a photo."""

    image: str
    caption: str
    further: tuple[str, ...] = ()
    """Further captions, which count like the first."""
    others: tuple[str, ...] = ()
    """Other captions that the model considered."""


@dataclass(frozen=True, slots=True)
class Match:
    """A photo that was found."""

    photo: CaptionText
    score: float
    """Above 0; only comparable with those of the same query."""


class CaptionIndex:
    """Finds photos by the words of their captions."""

    def __init__(self, photos: Iterable[CaptionText]) -> None:
        self._photos = list(photos)
        self._texts = [[_words(one) for one in (photo.caption, *photo.further)] for photo in self._photos]
        self._lengths = [sum(map(len, texts)) / len(texts) for texts in self._texts]
        self._weights: dict[str, dict[int, float]] = defaultdict(dict)
        """Weight of a base in a photo, by base and number of the photo."""
        for number, photo in enumerate(self._photos):
            for word in (word for other in photo.others for word in joined(_words(other))):
                self._weights[base(word)][number] = _OTHER_WEIGHT
            for word in (word for text in self._texts[number] for word in joined(text)):
                self._weights[base(word)][number] = 1.0
        self._mean_length = sum(self._lengths) / max(1, len(self._photos)) or 1.0

    def find(self, text: str) -> list[Match]:
        """The photos that have some of the words and all of the phrases of a query, best first; of equal ones
        the earlier. Raises `OptionsError` for an empty query."""
        query = Query.parse(text)
        without = {
            number
            for word in query.without_words
            for number, weight in self._matches(word).items()
            if weight == 1.0
        }
        left = [
            number
            for number in range(len(self._photos))
            if number not in without
            and all(self._has_phrase(number, phrase) for phrase in query.phrases)
            and not any(self._has_phrase(number, phrase) for phrase in query.without_phrases)
        ]
        scores = self._score(query.words)
        if query.phrases:
            scores = {number: 1.0 + scores.get(number, 0.0) for number in left}
        found = [Match(self._photos[number], scores[number]) for number in left if number in scores]
        return sorted(found, key=lambda one: -one.score)

    def _score(self, words: Sequence[str]) -> dict[int, float]:
        scores: dict[int, float] = defaultdict(float)
        for word in words:
            found = self._matches(word)
            rarity = math.log(1 + (len(self._photos) - len(found) + 0.5) / (len(found) + 0.5))
            for number, weight in found.items():
                length = self._lengths[number] / self._mean_length
                scores[number] += rarity * weight / (1 - _LENGTH_SHARE + _LENGTH_SHARE * length)
        return scores

    def _matches(self, word: str) -> dict[int, float]:
        """How much each photo has of a base."""
        found = {
            number: _KIND_WEIGHT * weight
            for kind in kinds(word)
            for number, weight in self._weights.get(kind, {}).items()
        }
        owns = [other for other in self._weights if _is_in(word, other)] if is_undivided(word) else [word]
        for own in owns:
            for number, weight in self._weights.get(own, {}).items():
                found[number] = max(weight, found.get(number, 0.0))
        return found

    def _has_phrase(self, number: int, phrase: Sequence[str]) -> bool:
        length = len(phrase)
        return any(
            all(map(_is_in, phrase, tokens[start : start + length]))
            for tokens in self._texts[number]
            for start in range(len(tokens) - length + 1)
        )


def _words(caption: str) -> list[str]:
    return join_undivided(tokenize(without_accents(caption)))


def _is_in(word: str, token: str) -> bool:
    """Whether a token is the word, or contains it in a script that does not divide words."""
    return word == token or (is_undivided(word) and word in token)
