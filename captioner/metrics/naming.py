"""Whether captions name what labelled photos show.

A caption that lists frequent nouns would often be right. The score is therefore the share of captions with a
right word minus the share that would be right by chance, for other photos.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from captioner.words.plurals import singulars
from captioner.words.tokens import tokenize

Phrase = tuple[str, ...]


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

    def to_dict(self) -> dict[str, float]:
        """The number of images, and the shares times 100."""
        shares = {name: getattr(self, name) for name in ("named", "by_chance", "score", "exactly")}
        return {"images": self.photos, **{name: round(100 * value, 4) for name, value in shares.items()}}


def score_naming(captions: Mapping[str, str], words: Mapping[str, Sequence[str]]) -> NamingScores:
    """`words` for each photo by its key, the most exact first, not empty; `captions` by the same keys.
    Singular and plural are equivalent. A photo without a caption counts as wrong."""
    phrases = {key: [tuple(tokenize(word)) for word in own] for key, own in words.items()}
    photos_of: dict[Phrase, set[str]] = defaultdict(set)
    for key, own in phrases.items():
        for form in set().union(*map(forms_of, own)):
            photos_of[form].add(key)
    longest = max(map(len, photos_of), default=0)
    named, exactly, chance = 0, 0, 0.0
    for key, own in phrases.items():
        caption = tokenize(captions.get(key, ""))
        forms = set().union(
            *(forms_of(run) for length in range(1, longest + 1) for run in _runs(caption, length))
        )
        named_by = set().union(*(photos_of[form] for form in forms if form in photos_of))
        named += key in named_by
        exactly += has_phrase(caption, own[0])
        chance += len(named_by - {key}) / max(1, len(words) - 1)
    count = len(words)
    return NamingScores(count, named / count, chance / count, exactly / count)


def has_phrase(caption: Sequence[str], phrase: Sequence[str]) -> bool:
    """Whether a tokenized caption has a tokenized phrase, its last word as a singular or a plural."""
    forms = forms_of(phrase)
    return any(not forms.isdisjoint(forms_of(run)) for run in _runs(caption, len(phrase)))


def forms_of(phrase: Sequence[str]) -> set[Phrase]:
    """The phrase with its last word as it is, and as a singular."""
    if not phrase:
        return set()
    *first, last = phrase
    return {(*first, word) for word in (last, *singulars(last))}


def _runs(words: Sequence[str], length: int) -> Iterator[Sequence[str]]:
    """All `length` successive words."""
    return (words[start : start + length] for start in range(len(words) - length + 1))
