"""Which words of a vocabulary name the classes of ImageNet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary

CLASSES = 1000
_FILE = "imagenet_words.json"
"""For each class of ILSVRC 2012, in order: its name in torchvision, and the correct words for it, taken from
the name, its synonyms and its hypernyms (WordNet 3.0)."""


@dataclass(frozen=True, slots=True)
class ClassWords:
    """The words of one vocabulary that name classes."""

    membership: Tensor
    """float (classes, named words): 1 where the word names the class."""
    column: Tensor
    """int64 (vocabulary): the named word that a token is, or their number if it is none."""

    @property
    def count(self) -> int:
        return self.membership.shape[1]

    @classmethod
    def of(cls, vocabulary: Vocabulary, classes: int) -> ClassWords:
        """Singular and plural forms count alike. Raises `DataError` if `classes` is not the number of
        ImageNet's or no class has a word."""
        if classes != CLASSES:
            raise DataError(f"[model] classes must be 0 or {CLASSES}, got {classes}")
        numbers = {word: number for number, word in enumerate(vocabulary.words)}
        names = [
            {form for word in words for form in _forms(word) if form in numbers} for words in class_words()
        ]
        named = sorted(set().union(*names), key=numbers.__getitem__)
        if not named:
            raise DataError("[model] classes: the vocabulary has no word for any of them")
        membership = torch.zeros(classes, len(named))
        column = torch.full((len(vocabulary),), len(named))
        for position, word in enumerate(named):
            column[numbers[word]] = position
            for number, own in enumerate(names):
                membership[number, position] = word in own
        return cls(membership, column)


@cache
def class_words() -> list[list[str]]:
    """The correct words for each class of ImageNet, the most exact first."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    return [entry["words"] for entry in json.loads(text)]


def _forms(word: str) -> Iterator[str]:
    yield from (word, f"{word}s", f"{word}es")
    if word.endswith("y"):
        yield f"{word[:-1]}ies"
    if word.endswith("f"):
        yield f"{word[:-1]}ves"
    if word.endswith("fe"):
        yield f"{word[:-2]}ves"
