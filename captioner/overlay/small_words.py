"""Function words: drawn smaller, and not selected when a page opens."""

from __future__ import annotations

SMALL_WORDS = frozenset(
    "a an the some this that these those it its his her their there he she they who which what as "  # noqa: SIM905
    "of in on at with by for from to into onto over under up down out off near next beside "
    "behind between through across around along against while and or but "
    "is are was were be being been has have having".split()
)


def is_small(word: str) -> bool:
    """Whether an English word is a function word, which names nothing in a photo."""
    return word.lower() in SMALL_WORDS
