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
        self._withdrawn = False
        """Whether that was because its caller has gone."""

    def begin(self) -> None:
        """Work on an image begins."""
        now = time.monotonic()
        since_s = self._unanswered_since_s
        self._unanswered_since_s = now if since_s is None else since_s + self._pause_s(now)
        self._in_work += 1

    def end(self, *, answered: bool, withdrawn: bool = False) -> None:
        """Work on an image has ended; `withdrawn`, as its caller has gone."""
        self._in_work -= 1
        self._left_s, self._withdrawn = time.monotonic(), withdrawn
        if answered:
            self._unanswered_since_s = self._left_s if self._in_work else None

    def stalled(self, limit_s: float) -> bool:
        """Whether images have come for longer than `limit_s` and none has been answered."""
        now = time.monotonic()
        if not self._in_work and now - self._left_s > limit_s:
            self._unanswered_since_s = None  # nobody comes any more: let others try
        since_s = self._unanswered_since_s
        return since_s is not None and now - self._pause_s(now) - since_s > limit_s

    def _pause_s(self, now: float) -> float:
        """How long nobody has waited since the last image was withdrawn, which says nothing of the model."""
        return 0.0 if self._in_work or not self._withdrawn else now - self._left_s
