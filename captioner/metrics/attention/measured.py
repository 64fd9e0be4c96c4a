"""Means over the words of captions, with confidence intervals over images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from captioner.metrics.bootstrap import SAMPLES, Statistics, interval, resampled_scores


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found, by name. NaN where there was nothing to measure."""

    images: int
    words: int
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    """95% confidence intervals of `values` over images."""

    @classmethod
    def of(
        cls, names: Sequence[str], statistics: Statistics, words: int, samples: int = SAMPLES, seed: int = 0
    ) -> Measured:
        """The scores of `statistics`, which `names` names; `samples` resamples make the intervals."""
        values = [math.nan] * len(names)
        drawn = np.full((1, len(names)), math.nan)
        if words:
            values = statistics.score().tolist()
            drawn = resampled_scores([statistics], samples, seed)
        return cls(
            images=len(statistics.per_image),
            words=words,
            values=dict(zip(names, values, strict=True)),
            intervals={name: interval(drawn[:, column]) for column, name in enumerate(names)},
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with None for NaN."""
        return {
            "images": self.images,
            "words": self.words,
            **{name: _short(value) for name, value in self.values.items()},
            "intervals": {name: [*map(_short, bounds)] for name, bounds in self.intervals.items()},
        }


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
