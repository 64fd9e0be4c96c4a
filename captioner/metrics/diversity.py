"""Diversity of captions, which references do not measure: one safe sentence for every image also scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from captioner.metrics.ngrams import count_ngrams
from captioner.words.english import UNFINISHED, is_foreign


@dataclass(frozen=True, slots=True)
class Diversity:
    """Statistics of the captions alone. Shares are from 0 to 1."""

    distinct_1: float
    """Distinct words over all words (Li et al. 2016, arXiv:1510.03055)."""
    distinct_2: float
    """Distinct bigrams over all bigrams."""
    vocabulary: int
    """Number of distinct words."""
    mean_length: float
    """Mean words per caption."""
    repeated: float
    """Share of images whose caption is also that of another image."""
    bad_endings: float
    """Share of captions that end with an article, a conjunction or a preposition, in English."""


def diversity(captions: Sequence[Sequence[str]]) -> Diversity:
    """The diversity of tokenized captions, one per image, at least one."""
    sentences = Counter(tuple(caption) for caption in captions)
    return Diversity(
        distinct_1=_distinct(captions, 1),
        distinct_2=_distinct(captions, 2),
        vocabulary=len({word for caption in captions for word in caption}),
        mean_length=sum(map(len, captions)) / len(captions),
        repeated=sum(count for count in sentences.values() if count > 1) / len(captions),
        bad_endings=sum(map(_is_unfinished, captions)) / len(captions),
    )


def _is_unfinished(caption: Sequence[str]) -> bool:
    return bool(caption) and caption[-1] in UNFINISHED and not is_foreign(" ".join(caption))


def _distinct(captions: Sequence[Sequence[str]], n: int) -> float:
    counts: Counter[tuple[str, ...]] = Counter()
    for caption in captions:
        counts.update(count_ngrams(caption, n))
    return len(counts) / max(1, counts.total())
