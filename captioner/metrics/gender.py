"""How often captions confuse the gender of people.

Captioners guess the gender of a person from the surroundings (Hendricks et al. 2018, "Women also Snowboard",
arXiv:1803.09797). The references decide, for photos where most of them name one gender and none names the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from captioner.words.english import MEN, WOMEN


@dataclass(frozen=True, slots=True)
class Gender:
    """Counts of photos."""

    women: int
    """Photos that show women or girls only, by their references."""
    women_as_men: int
    """Photos of women whose caption names only men or boys."""
    women_named: int
    """Photos of women whose caption names any gender."""
    men: int
    men_as_women: int
    men_named: int

    def to_dict(self) -> dict[str, float]:
        """Shares in percent, of the captions that name a gender."""
        return {
            "women_called_men": _percent(self.women_as_men, self.women_named),
            "men_called_women": _percent(self.men_as_women, self.men_named),
        }


def gender(captions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> Gender:
    """Compare tokenized captions, one for each photo, with the tokenized references of the photo."""
    counts = {"women": [0, 0, 0], "men": [0, 0, 0]}
    for words, own in zip(captions, references, strict=True):
        shown = _shown(own)
        if shown is None:
            continue
        man, woman = not MEN.isdisjoint(words), not WOMEN.isdisjoint(words)
        photos, wrong, named = counts[shown]
        only_other = man and not woman if shown == "women" else woman and not man
        counts[shown] = [photos + 1, wrong + only_other, named + (man or woman)]
    return Gender(*counts["women"], *counts["men"])


def _shown(references: Sequence[Sequence[str]]) -> str | None:
    """The gender of the people in a photo, if the references settle it."""
    men = sum(not MEN.isdisjoint(words) for words in references)
    women = sum(not WOMEN.isdisjoint(words) for words in references)
    if women and not men and 2 * women > len(references):
        return "women"
    if men and not women and 2 * men > len(references):
        return "men"
    return None


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 4) if whole else 0.0
