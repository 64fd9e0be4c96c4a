"""Articles of captions, corrected where the language of the model is English.

A model learns "a" far more often than "an", and chooses it before it knows the noun.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence

from captioner.results import Word
from captioner.words.english import ARTICLES, is_foreign
from captioner.words.nouns import agreed, is_settled

ENGLISH = "en"
"""The `language` in the bundle.json of models whose articles are corrected."""


def language_of(words: Collection[str]) -> str | None:
    """The language of a vocabulary, if it is known to be English, and only English."""
    if not all(word in words for word in (*ARTICLES, "the")):
        return None
    # One may be a name. Others must keep their words "a" and "an", as in "an der Wand".
    return ENGLISH if sum(map(is_foreign, words)) < 2 else None


def settled(words: Iterable[Word]) -> Iterator[Word]:
    """Words that are being chosen, with the right articles (`agreed`), each of which comes when what follows
    has settled it."""
    held: list[Word] = []
    before = ""
    for word in words:
        held.append(word)
        if held[0].text in ARTICLES and not is_settled([one.text for one in held]):
            continue
        again = len(held) > 1 and word.text in ARTICLES
        end = -1 if again else None
        yield from _agreed(held, before)[:end]
        before = held[:end][-1].text
        held = [word] if again else []
    yield from _agreed(held, before)


def _agreed(words: Sequence[Word], before: str) -> list[Word]:
    texts = agreed([word.text for word in words], before)
    return [
        word if text == word.text else dataclasses.replace(word, text=text)
        for word, text in zip(words, texts, strict=True)
    ]
