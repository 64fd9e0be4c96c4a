"""Does a caption name what a labelled photo shows?

A caption that lists frequent nouns would often be right. So the score is the share of captions that have a
right word, less the share that would be right by chance, on other photos.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_WORD = re.compile(r"[a-z0-9'-]+")
_LONGEST = 3
"""Words of the longest phrase that is looked for."""
_PLURALS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("men", "man"))


@dataclass(frozen=True, slots=True)
class NamingScores:
    """Shares, 0 to 1."""

    photos: int
    named: float
    """Captions with one of the words that are right for the photo."""
    by_chance: float
    """Mean share of the other photos for which the same caption would have been right."""
    exactly: float
    """Captions with the most exact word of the photo."""

    @property
    def score(self) -> float:
        return self.named - self.by_chance


def score_naming(captions: Mapping[str, str], words: Mapping[str, Sequence[str]]) -> NamingScores:
    """`words` for each photo by its key, the most exact first, not empty; `captions` by the same keys.
    Singular and plural count alike. A photo without a caption counts as wrong."""
    right = {key: set().union(*(_forms(word.lower()) for word in own)) for key, own in words.items()}
    photos_of: dict[str, set[str]] = defaultdict(set)
    for key, forms in right.items():
        for form in forms:
            photos_of[form].add(key)
    named, exactly, chance = 0, 0, 0.0
    for key, own in words.items():
        said = _phrases(captions.get(key, ""))
        fits = set().union(*(photos_of[phrase] for phrase in said if phrase in photos_of))
        named += key in fits
        exactly += bool(said & _forms(own[0].lower()))
        chance += len(fits - {key}) / max(1, len(words) - 1)
    count = len(words)
    return NamingScores(count, named / count, chance / count, exactly / count)


def _forms(phrase: str) -> set[str]:
    """The phrase with its last word as it is, and as a singular."""
    *first, last = phrase.split()
    lasts = {last}
    for plural, singular in _PLURALS:
        if last.endswith(plural) and len(last) > len(plural) + 1:
            lasts.add(last.removesuffix(plural) + singular)
    return {" ".join([*first, word]) for word in lasts}


def _phrases(caption: str) -> set[str]:
    words = _WORD.findall(caption.lower())
    runs = (
        " ".join(words[start : start + length])
        for length in range(1, _LONGEST + 1)
        for start in range(len(words) - length + 1)
    )
    return set().union(*(_forms(run) for run in runs))
