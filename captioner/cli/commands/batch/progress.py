"""Progress of a batch on stderr: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from captioner.errors import LowConfidenceError
from captioner.folder.items import FolderResult
from captioner.printable import counted, printable

LINE_EVERY_S = 10.0
FIRST_BATCH_S = 0.05
"""Between two images of one batch there is less."""


class Pace:
    """How fast images are done, without the start, when models and processes load."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._done = 0

    def add(self, now: float) -> None:
        """One more is done."""
        # Images come in batches: the clock starts with the end of the first one.
        if self._since is None or (self._done == 0 and now - self._since < FIRST_BATCH_S):
            self._since = now
        else:
            self._done += 1

    def rate(self, now: float) -> float:
        """Images per second; 0 while it is not known."""
        return self._done / (now - self._since) if self._since is not None and now > self._since else 0.0


class BatchProgress:
    """Use as a context."""

    def __init__(self, total: int, left: int, *, quiet: bool) -> None:
        """`left` of `total` images are to be captioned now. When `quiet`, only failures are printed."""
        self._quiet = quiet
        self.done = self.failed = 0
        self.total, self._left = total, left
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self._started = self._last_line = time.monotonic()
        self._pace = Pace()
        self._bar = Bar(
            TextColumn("{task.completed} of {task.total}"),
            BarColumn(),
            TextColumn("{task.fields[rate]:.1f} images/s, {task.fields[failed]} failed"),
            TextColumn("left: {task.fields[left]}"),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=left, rate=0.0, failed=0, left="")

    def __enter__(self) -> Self:
        if self._left < self.total:
            self.say(f"{self.total - self._left} of {self.total} images are done already")
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def count(self, result: FolderResult) -> None:
        """Count one finished image; if it failed, print the reason."""
        self.done += 1
        if result.error is not None and not isinstance(result.error, LowConfidenceError):  # as was asked for
            self.failed += 1
            self.say_failure(result)
        now = time.monotonic()
        self._pace.add(now)
        rate, left = self._pace.rate(now), self._time_left(now)
        self._bar.update(self._task, completed=self.done, rate=rate, failed=self.failed, left=left)
        if not self._console.is_terminal and now - self._last_line >= LINE_EVERY_S and left:
            self._last_line = now
            self.say(f"{self.done} of {self._left}, {rate:.1f} images/s, {left} left")

    def _time_left(self, now: float) -> str:
        """Empty until the pace is known."""
        rate = self._pace.rate(now)
        return str(timedelta(seconds=round((self._left - self.done) / rate))) if rate else ""

    def say_failure(self, result: FolderResult, when: str = "") -> None:
        """Print an image without a caption and the reason; `when` says when it failed, if not now."""
        note = f" ({when})" if when else ""
        self._console.print(f"captioner: {printable(result.image)}: {printable(str(result.error))}{note}")

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(f"captioner: {printable(text)}")

    def summarize(self, failed: int, low_confidence: int) -> None:
        """Print totals, which include earlier runs; captions of too `low_confidence` were left out."""
        seconds = time.monotonic() - self._started
        more = f", {low_confidence} left out (confidence below --min-confidence)" if low_confidence else ""
        self.say(
            f"{counted(self.done, 'image')} in {seconds:.1f} s ({self.done / max(seconds, 1e-9):.1f}/s); "
            f"{self.total} in all, {failed} of them failed{more}"
        )
