"""The losses of the steps that were taken, read from the device no more often than needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.training.loop.report import mean_losses

READ_EVERY = 50
"""Losses are read once in so many steps: reading a value from a GPU waits for all queued work."""


class StepLosses:
    """The steps of an epoch, from batch `first` on. On a CPU each is read at once."""

    def __init__(self, device: torch.device, first: int) -> None:
        self._every = 1 if device.type == "cpu" else READ_EVERY
        self._waiting: list[tuple[Mapping[str, Tensor], Tensor]] = []
        self._read: list[dict[str, float]] = []
        self._first = first

    def add(self, losses: Mapping[str, Tensor], norm: Tensor) -> None:
        """The "loss" of a step and those of its objectives, with the norm of the gradient. May `read`."""
        self._waiting.append((losses, norm))
        if len(self._waiting) >= self._every:
            self.read()

    def read(self) -> None:
        """Read what waits. Raises `DataError` for a loss or norm that is not finite."""
        if not self._waiting:
            return
        values = [value for losses, norm in self._waiting for value in (norm, *losses.values())]
        numbers = iter(torch.stack([value.detach().double() for value in values]).tolist())
        for losses, _ in self._waiting:
            norm, *rest = (next(numbers) for _ in range(1 + len(losses)))
            step = dict(zip(losses, rest, strict=True))
            for name, value in (("loss", step["loss"]), ("norm of the gradient", norm)):
                if not math.isfinite(value):
                    raise DataError(
                        f"the {name} is {value} at batch {self._first + len(self._read)}: try a smaller"
                        " learning_rate, in another folder"
                    )
            self._read.append(step)
        self._waiting.clear()

    def mean(self, last: int = 0) -> dict[str, Any]:
        """The mean losses of the steps that were read, or of the `last` of these."""
        return mean_losses(self._read[-last:])
