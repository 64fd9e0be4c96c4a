"""Articles of captions, corrected where the language of the model is English.

A model learns "a" far more often than "an", and chooses it before it knows the next word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import zip_longest

from captioner.results import Word
from captioner.words.english import ARTICLES, article

ENGLISH = "en"
"""The `language` in the bundle.json of models whose articles are corrected."""


def language_of(words: Container[str]) -> str | None:
    """The language of a vocabulary, if it is known to be English."""
    return ENGLISH if all(word in words for word in (*ARTICLES, "the")) else None


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
