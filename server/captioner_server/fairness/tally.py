"""Counts open items, such as calls, for each owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Tally:
    """How many of something each owner has. Owners that have none are forgotten."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __getitem__(self, owner: str) -> int:
        return self._counts[owner]

    @property
    def total(self) -> int:
        return self._counts.total()

    @contextmanager
    def one(self, owner: str) -> Iterator[None]:
        """The owner has one more until the context ends."""
        self._counts[owner] += 1
        try:
            yield
        finally:
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
