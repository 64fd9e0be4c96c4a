"""Photos that are missing or damaged: they are named, and left out if they are few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from captioner.errors import DataError
from captioner.training.data.examples import Example
from captioner.training.data.feature_cache import FeatureCache

MOST_NAMED = 5
"""How many missing photos are named. The others are most often missing for the same reason."""


class LeftOut:
    """The photos that a run cannot use."""

    def __init__(self, photos: int, share: float, note: Callable[[str], None], most: str = "") -> None:
        """`photos` is the number of all, `share` that of them that may be left out; those that are, are named
        to `note`. `most` says how many these are, by default as an option of training."""
        self._photos, self._share, self._note = photos, share, note
        self._most = most or f"damaged_share = {share:g} allows"
        self._faults: list[str] = []

    def add(self, faults: Iterable[str]) -> None:
        """Name photos with what is wrong with them."""
        faults = [*faults]
        self._faults += faults
        for text in faults[:MOST_NAMED]:
            self._note(f"left out: {text}")
        if (more := len(faults) - MOST_NAMED) > 0:
            self._note(f"left out: {more} more")

    def check(self) -> None:
        """Raise `DataError` if there are too many."""
        if len(self._faults) > self._share * self._photos:
            raise DataError(
                f"{len(self._faults)} of {self._photos} photos are missing or damaged, more than"
                f" {self._most}; the first is {self._faults[0]}"
            )

    def there(self, examples: Iterable[Example]) -> list[Example]:
        """The examples whose files can be read."""
        found, faults = [], []
        for example in examples:
            try:
                _ = example.digest
                found.append(example)
            except DataError as error:
                faults.append(f"{example.key}: {error}")
        self.add(faults)
        return found

    def usable(
        self, examples: Sequence[Example], features: FeatureCache
    ) -> tuple[list[Example], FeatureCache]:
        """The examples whose files are photos, and their part of the `features`. Raises `DataError` if these
        are too few."""
        self.add(f"{examples[row].key}: {fault}" for row, fault in features.damaged.items())
        self.check()
        rows = [row for row in range(len(examples)) if row not in features.damaged]
        return [examples[row] for row in rows], features.select(rows)
