"""A fair queue: callers take turns by the cost of their work, and interactive calls come before bulk.

Weighted fair queueing with the virtual time of Bennett and Zhang (WF2Q+, 1997): each caller has a virtual
time, which grows by the cost of its items; the item that would end first comes next. An item therefore waits
for about its own cost of each other caller's work, however expensive that work is. A caller that returns
after a pause starts at the current virtual time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

BULK_SHARE = 0.25
"""Minimum share of bulk work while interactive calls wait too."""
_BULK_RATE = BULK_SHARE / (1 - BULK_SHARE)
_MOST_OWING = 1024
"""About the most callers whose debts are remembered while they do not wait."""


class Asker(Protocol):
    """What the queue reads of a `Ticket`."""

    @property
    def caller(self) -> str: ...

    @property
    def bulk(self) -> bool: ...


@dataclass(slots=True)
class _Line(Generic[T]):
    """Interactive or bulk work."""

    items: dict[str, dict[T, float]] = field(default_factory=dict)
    """The waiting items of each caller in order, with their costs."""
    times: dict[str, float] = field(default_factory=dict)
    """Virtual start time of each caller's next item, in units of cost."""
    now: float = 0.0
    """Virtual start time of a new caller."""

    def add(self, item: T, caller: str, cost: float) -> None:
        if caller not in self.items:
            self.times[caller] = max(self.times.get(caller, 0.0), self.now)
        self.items.setdefault(caller, {})[item] = cost
        self._forget()

    def discard(self, item: T, caller: str) -> None:
        del self.items[caller][item]
        if not self.items[caller]:
            del self.items[caller]

    def charge(self, caller: str, cost: float) -> None:
        """Charge a caller for an item that has been taken."""
        self.times[caller] += cost
        # Virtual time passes equally for all waiting callers, and new callers do not overtake them.
        self.now += cost / (len(self.items) + (caller not in self.items))
        self.now = max(self.now, min((self.times[waits] for waits in self.items), default=0.0))
        self._forget()

    def charge_more(self, caller: str, more: float) -> None:
        """Delay the caller's next item by this cost."""
        if more > 0:
            owes = self.times.get(caller, 0.0)
            if len(self.items) > (caller in self.items):
                self.times[caller] = max(owes, self.now) + more
            else:
                # Nobody waits for it. If these costs added up, a caller that has long been alone would have
                # to wait until newcomers have used as much.
                self.times[caller] = max(owes, self.now + more)
            self._forget()

    def _forget(self) -> None:
        """Forget callers that do not wait: those that owe nothing and, of too many others, those that owe
        least. At least half as many callers come between two rounds as one round looks at."""
        if len(self.times) <= 2 * len(self.items) + _MOST_OWING:
            return
        owing = (name for name, time in self.times.items() if time > self.now and name not in self.items)
        kept = heapq.nlargest(_MOST_OWING // 2, owing, key=self.times.__getitem__)
        self.times = {name: self.times[name] for name in (*self.items, *kept)}

    def order(self) -> Iterator[tuple[T, float]]:
        """The items in fair order, with their costs."""
        left = [iter(items.items()) for items in self.items.values()]
        ends: list[tuple[float, int, T, float]] = []  # of the next item of each caller

        def push(number: int, begin: float) -> None:
            for item, cost in left[number]:
                heapq.heappush(ends, (begin + cost, number, item, cost))
                return

        for number, caller in enumerate(self.items):
            push(number, self.times[caller])
        while ends:
            end, number, item, cost = heapq.heappop(ends)
            push(number, end)
            yield item, cost


class FairQueue(Generic[T]):
    """Items must be hashable, and each is in the queue once."""

    def __init__(self) -> None:
        self._lines: tuple[_Line[T], _Line[T]] = (_Line(), _Line())  # interactive, bulk
        self._askers: dict[T, tuple[Asker, float]] = {}  # with the costs of their items
        self._owed = 0.0  # to bulk work, for interactive items taken before it

    def __len__(self) -> int:
        return len(self._askers)

    def __contains__(self, item: object) -> bool:
        return item in self._askers

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._askers))

    def add(self, item: T, asker: Asker, cost: float = 1.0) -> None:
        """`cost` is in images with the model's default search."""
        self._askers[item] = asker, cost
        self._lines[asker.bulk].add(item, asker.caller, cost)

    def has_others(self, caller: str) -> bool:
        """Whether a caller other than this one has items. Thread-safe."""
        return any(len(line.items) > (caller in line.items) for line in self._lines)

    def discard(self, item: T) -> None:
        """Remove an item that is no longer wanted."""
        asker, _ = self._askers.pop(item)
        self._lines[asker.bulk].discard(item, asker.caller)

    def take(self, item: T) -> T:
        """Remove an item and charge its caller."""
        asker, cost = self._askers[item]
        self.discard(item)
        self._lines[asker.bulk].charge(asker.caller, cost)
        if asker.bulk:
            self._owed = max(0.0, self._owed - cost)
        elif self._lines[True].items:
            self._owed += cost * _BULK_RATE
        return item

    def charge_more(self, asker: Asker, more: float) -> None:
        """Charge what an item has cost beyond what was expected."""
        self._lines[asker.bulk].charge_more(asker.caller, more)

    def newest_of_most(self, caller: str) -> T | None:
        """The newest item of the caller that has the most interactive ones; None unless it has at least two
        more than `caller`."""
        items = self._lines[False].items
        most = max(items, key=lambda name: len(items[name]), default=caller)
        if len(items.get(most, ())) < len(items.get(caller, ())) + 2:
            return None
        return next(reversed(items[most]))

    def order(self) -> Iterator[T]:
        """All items in fair order. The queue must not change meanwhile."""
        interactive, bulk = (line.order() for line in self._lines)
        owed = self._owed
        first, other = next(interactive, None), next(bulk, None)
        while first or other:
            if other and (first is None or owed >= other[1]):
                owed = max(0.0, owed - other[1])
                yield other[0]
                other = next(bulk, None)
            elif first:
                owed += first[1] * _BULK_RATE if other else 0.0
                yield first[0]
                first = next(interactive, None)
