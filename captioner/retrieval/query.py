"""What somebody searches for: words, "a phrase", and -words that must not be there."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Self

import regex

from captioner.errors import OptionsError
from captioner.words.english import is_function_word
from captioner.words.forms import base, joined
from captioner.words.tokens import join_undivided, tokenize

_ACCENTS = regex.compile(
    r"([\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{Script=Arabic}\p{Script=Hebrew}])\p{M}+"
)
"""Marks that people may leave out, as in `overlay/templates/search.js`; those of other scripts make other
letters."""
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ħ": "h", "ı": "i"}
)
"""Letters that have no accent to leave out, as in `search.js`, and what people type for them."""
_TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


def without_accents(text: str) -> str:
    """The text in lower-case letters as people type them."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFC", _ACCENTS.sub(r"\1", unicodedata.normalize("NFKD", text)))
    return plain.lower().translate(_LETTERS)


@dataclass(frozen=True, slots=True)
class Query:
    """The parts of a query. Words, compounds joined, are bases (`captioner.words.forms`); phrases are
    words as they stand."""

    words: tuple[str, ...]
    """What captions should have, the more of it the better; without those that name nothing, if there are
    others."""
    phrases: tuple[tuple[str, ...], ...] = ()
    """What captions must have."""
    without_words: frozenset[str] = frozenset()
    without_phrases: tuple[tuple[str, ...], ...] = ()
    """What captions must not have."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a query. Raises `OptionsError` if there is nothing to search for."""
        words: list[str] = []
        small: set[str] = set()
        phrases: list[tuple[str, ...]] = []
        without: set[str] = set()
        without_phrases: list[tuple[str, ...]] = []
        for minus, quoted, plain in _TERM.findall(text):
            found = tokenize(without_accents(quoted or plain))
            if quoted and found:
                (without_phrases if minus else phrases).append(tuple(join_undivided(found)))
            elif minus:
                without.update(map(base, found))
            else:
                words += found
                small.update(filter(is_function_word, tokenize(plain)))  # "be", but not "bé"
        words = list(joined(words))
        weighty = [word for word in words if word not in small]
        if not words and not phrases:
            raise OptionsError("name at least one word to search for", "query")
        kept = weighty or ([] if phrases else words)
        return cls(
            tuple(dict.fromkeys(map(base, kept))), tuple(phrases), frozenset(without), tuple(without_phrases)
        )
