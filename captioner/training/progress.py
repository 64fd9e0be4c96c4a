"""Progress on stderr: bars in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from captioner.printable import printable

Tell = Callable[[int, str], None]
EVERY_S = 30.0
"""Seconds between two lines about the same work where there is no terminal."""


class Progress:
    """Shows the progress of long work."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self.every_s = every_s

    def note(self, text: str) -> None:
        """Print a line."""
        self.console.print(printable(text))

    @contextmanager
    def task(self, what: str, total: int, done: int) -> Iterator[Tell]:
        """Work of `total` steps, `done` of them already; yields a function (done, remark)."""
        if not self.console.is_terminal:
            yield self._lines(what, total, done)
            return
        with Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[remark]}", markup=False),
            console=self.console,
            transient=True,
        ) as bars:
            task = bars.add_task(what, total=total, completed=done, remark="")
            yield lambda now, remark: bars.update(task, completed=now, remark=remark)

    def _lines(self, what: str, total: int, first: int) -> Tell:
        """Says how far the work is and how long the rest takes, if it takes long."""
        started = said = time.monotonic()

        def tell(done: int, remark: str) -> None:
            nonlocal said
            now = time.monotonic()
            if now - said < self.every_s or not first < done < total:
                return
            said = now
            left = duration((now - started) / (done - first) * (total - done))
            self.note(", ".join(filter(None, (f"{what}: {done} of {total}", remark, f"about {left} left"))))

        return tell


def duration(seconds: float) -> str:
    """A time for people: 40 s, 5 min, 2 h 10 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
