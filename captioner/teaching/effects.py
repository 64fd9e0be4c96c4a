"""What teaching changed: captions before and after, of the photos that were taught and of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from captioner.metrics import compare_captions, evaluate_captions

Captions = Mapping[str, str]
"""Caption by the name of the photo."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The captions of some photos before and after."""

    photos: str
    """Which photos these are."""
    count: int
    changed: int
    """Captions that are not the same any more."""
    before: float | None = None
    """CIDEr against the captions of people, times 100; None where there are none."""
    after: float | None = None
    worse: bool = False
    """Whether CIDEr fell beyond doubt: its 95% interval is below 0."""

    @property
    def share(self) -> float:
        """The share of the captions that changed."""
        return self.changed / self.count if self.count else 0.0

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
        first, second = (
            evaluate_captions(said, wanted, meteor=False).to_dict()["cider"] for said in (old, after)
        )
        fell = False
        if len(after) > 1:
            difference = compare_captions(after, old, wanted, meteor=False).differences["cider"]
            fell = difference.interval[1] < 0
        return cls(photos, len(after), changed, first, second, fell)


def table(effects: Sequence[Effect]) -> str:
    """The effects as lines of text."""
    rows: list[tuple[str, ...]] = [("photos", "number", "changed", "CIDEr before", "after")]
    for one in effects:
        scores = ("" if score is None else f"{score:.0f}" for score in (one.before, one.after))
        rows.append((one.photos, str(one.count), f"{100 * one.share:.0f}%" if one.count else "", *scores))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
