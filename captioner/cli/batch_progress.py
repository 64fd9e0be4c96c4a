"""Progress of a batch on stderr: a bar on a terminal, an occasional line elsewhere."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from captioner.cli.output import counted, printable
from captioner.folder.items import FolderResult

LINE_EVERY_S = 10.0


class Progress:
    """Use as a context."""

    def __init__(self, total: int, left: int, *, quiet: bool = False) -> None:
        """`left` of `total` images are to be captioned now. When `quiet`, only failures are printed."""
        self._quiet = quiet
        self.done = self.failed = 0
        self.total, self._left = total, left
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self._started = self._last_line = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.completed} of {task.total}"),
            BarColumn(),
            TextColumn("{task.fields[rate]:.1f} images/s, {task.fields[failed]} failed, left:"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=left, rate=0.0, failed=0)

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
        if result.error is not None:
            self.failed += 1
            self.say_failure(result)
        self._bar.update(self._task, completed=self.done, rate=self._rate(), failed=self.failed)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            left_s = (self._left - self.done) / max(self._rate(), 1e-9)
            self.say(f"{self.done} of {self._left}, {self._rate():.1f} images/s, {left_s:.0f} s left")

    def say_failure(self, result: FolderResult, when: str = "") -> None:
        """Print an image without a caption and the reason; `when` says when it failed, if not now."""
        note = f" ({when})" if when else ""
        self._console.print(f"captioner: {printable(result.image)}: {printable(str(result.error))}{note}")

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(f"captioner: {printable(text)}")

    def summarize(self, failed: int) -> None:
        """Print totals; `failed` includes the failures of earlier runs."""
        seconds = time.monotonic() - self._started
        self.say(
            f"{counted(self.done, 'image')} in {seconds:.1f} s ({self._rate():.1f}/s); "
            f"{self.total} in all, {failed} of them failed"
        )

    def _rate(self) -> float:
        return self.done / max(time.monotonic() - self._started, 1e-9)
