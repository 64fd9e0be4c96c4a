"""Progress bars on stderr; plain lines where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

Tell = Callable[[int, str], None]


class Progress:
    """Shows the progress of long work."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)

    def note(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    @contextmanager
    def task(self, what: str, total: int, done: int) -> Iterator[Tell]:
        """A bar of `total` steps, `done` of them already; yields a function (done, remark)."""
        with Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[remark]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        ) as bars:
            task = bars.add_task(what, total=total, completed=done, remark="")
            yield lambda now, remark: bars.update(task, completed=now, remark=remark)
