"""Counts of n-grams, shared by BLEU and CIDEr."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

MAX_N = 4

Token = TypeVar("Token", bound=Hashable)


def count_ngrams(tokens: Sequence[Token], n: int) -> dict[tuple[Token, ...], int]:
    """How often each n-gram of exactly `n` tokens occurs."""
    counts: dict[tuple[Token, ...], int] = {}
    for ngram in zip(*(tokens[start:] for start in range(n)), strict=False):
        counts[ngram] = counts.get(ngram, 0) + 1
    return counts
