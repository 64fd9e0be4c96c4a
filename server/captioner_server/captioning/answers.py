"""Watches whether images are answered at all."""

from __future__ import annotations

import time


class AnswerWatch:
    """Images in work, and since when none of them has been answered."""

    def __init__(self) -> None:
        self._in_work = 0
        self._unanswered_since_s: float | None = None
        self._left_s = 0.0
        """When an image last left, answered or not."""

    def begin(self) -> None:
        """Work on an image begins."""
        self._in_work += 1
        self._unanswered_since_s = self._unanswered_since_s or time.monotonic()

    def end(self, *, answered: bool) -> None:
        """Work on an image has ended."""
        self._in_work -= 1
        self._left_s = time.monotonic()
        if answered:
            self._unanswered_since_s = self._left_s if self._in_work else None

    def stalled(self, limit_s: float) -> bool:
        """Whether images have come for longer than `limit_s` and none has been answered."""
        now = time.monotonic()
        if not self._in_work and now - self._left_s > limit_s:
            self._unanswered_since_s = None  # nobody comes any more: let others try
        return self._unanswered_since_s is not None and now - self._unanswered_since_s > limit_s
