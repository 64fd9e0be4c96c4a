"""Objects that a caption mentions: which are in the photo, and which are not (CHAIR).

Rohrbach et al. 2018, "Object Hallucination in Image Captioning", arXiv:1809.02156. An object is one of the
80 categories of COCO; the references of an image list those that are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioner.metrics.bootstrap import Array, Statistics
from captioner.words.coco import PHRASES
from captioner.words.colors import is_color

SCORES = ("chair_i", "chair_s", "object_recall")
"""The share of mentioned objects that are not there; the share of captions that mention such; the share of
the objects that are there that are mentioned."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Words of a caption that name a category."""

    category: str
    """One of `captioner.words.coco.CATEGORIES`."""
    start: int
    """Index of the first word."""
    end: int
    """Index behind the last word, which is the head: "hot dog", "fire hydrant"."""


def find_mentions(words: Sequence[str]) -> list[Mention]:
    """The mentions in a tokenized caption, in order; the longest phrase at each place, so that a "hot dog"
    is no dog, and what only sounds like an object ("toilet paper", "an orange shirt") none."""
    words = [word.lower() for word in words]
    found = []
    start = 0
    while start < len(words):
        longest = min(_LONGEST, len(words) - start)
        length = next((n for n in range(longest, 0, -1) if tuple(words[start : start + n]) in PHRASES), 1)
        end = start + length
        category = PHRASES.get(tuple(words[start:end]))
        if category and not (words[start] == "orange" and is_color(words, start)):
            found.append(Mention(category, start, end))
        start = end
    return found


def chair_statistics(
    captions: Sequence[Sequence[str]], objects: Sequence[Sequence[str]]
) -> dict[tuple[str, ...], Statistics]:
    """`SCORES` of tokenized captions, given the categories that are in each image.

    CHAIR counts every mention; where none is made, there is nothing to get wrong and CHAIR is 0.
    """
    rows = [_count(words, set(there)) for words, there in zip(captions, objects, strict=True)]
    return {SCORES: Statistics(np.array(rows, dtype=np.float64).reshape(-1, 6), _combine)}


def _count(words: Sequence[str], there: set[str]) -> list[int]:
    said = [mention.category for mention in find_mentions(words)]
    wrong = sum(category not in there for category in said)
    return [wrong, len(said), wrong > 0, 1, len(there & set(said)), len(there)]


def _combine(sums: Array) -> Array:
    return sums[..., 0::2] / np.maximum(sums[..., 1::2], 1)


_LONGEST = max(map(len, PHRASES))
