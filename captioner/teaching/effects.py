"""What teaching changed: captions before and after, of the photos that were taught and of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from captioner.metrics import compare_captions, evaluate_captions
from captioner.words.tokens import tokenize

Captions = Mapping[str, str]
"""Caption by the name of the photo."""
AS_WRITTEN = 0.75
"""The agreement from which on a caption counts as what a person wrote."""
TOO_FEW = 8
"""With fewer photos, a row of the table says little."""


def agreement(said: str, written: Sequence[str]) -> float:
    """The share of words that a caption has in common with the most similar one of those that people wrote,
    from 0 to 1 (the harmonic mean of both captions' shares)."""
    own = Counter(tokenize(said))
    others = [Counter(tokenize(text)) for text in written]
    return max(
        (2 * (own & other).total() / max(1, own.total() + other.total()) for other in others), default=0.0
    )


@dataclass(frozen=True, slots=True)
class Closeness:
    """How close captions are to those of people."""

    cider: float
    """Times 100, with people's captions as references; 0 for very few photos."""
    agreement: float
    """The mean `agreement`."""
    as_written: float
    """The share of the captions with an agreement of at least `AS_WRITTEN`."""

    @classmethod
    def of(cls, said: Captions, written: Mapping[str, Sequence[str]]) -> Closeness:
        agreements = [agreement(text, written[name]) for name, text in said.items()]
        cider = evaluate_captions(said, written, meteor=False).to_dict()["cider"]
        return cls(cider, fmean(agreements), fmean(one >= AS_WRITTEN for one in agreements))


@dataclass(frozen=True, slots=True)
class Effect:
    """The captions of some photos before and after."""

    photos: str
    """Which photos these are."""
    count: int
    changed: int
    """Captions that are not the same any more."""
    before: Closeness | None = None
    """None where there are no captions of people."""
    after: Closeness | None = None
    worse: bool = False
    """Whether CIDEr fell beyond doubt: its 95% interval is below 0."""

    @property
    def share(self) -> float:
        """The share of the captions that changed."""
        return self.changed / self.count if self.count else 0.0

    @property
    def improved(self) -> bool:
        """Whether the captions are more like those that people wrote, or were these before."""
        if not (self.before and self.after):
            return False
        return self.after.agreement > self.before.agreement or self.after.agreement == 1

    @classmethod
    def measure(
        cls,
        photos: str,
        before: Captions,
        after: Captions,
        references: Mapping[str, Sequence[str]] | None = None,
    ) -> Effect:
        """Of the photos in `after`; `references` are captions that people wrote for them."""
        changed = sum(text != before[name] for name, text in after.items())
        if not after or references is None:
            return cls(photos, len(after), changed)
        old = {name: before[name] for name in after}
        wanted = {name: tuple(references[name]) for name in after}
        fell = False
        if len(after) > 1:
            difference = compare_captions(after, old, wanted, meteor=False).differences["cider"]
            fell = difference.interval[1] < 0
        return cls(photos, len(after), changed, Closeness.of(old, wanted), Closeness.of(after, wanted), fell)
