"""How likely a caption is to be good: a probability, calibrated on captions that people wrote.

A model's own probability of a caption says little by itself: long captions are improbable. The mean
log-probability of a token tells good captions from bad, and Platt scaling (Platt 1999), a logistic curve
fitted on images the model has not seen, makes of it the probability of an event that can be checked; the
bundle says which. `benchmarks/calibration.py` fits the curve and draws how reliable it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted curve."""

    slope: float
    intercept: float
    event: str
    """What the probability is of."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self | None:
        """The calibration in a bundle's `bundle.json`; None where there is none."""
        try:
            entry = manifest["confidence"]
            return cls(float(entry["slope"]), float(entry["intercept"]), str(entry["event"]))
        except (KeyError, TypeError, ValueError):
            return None

    def confidence(self, text: str, log_prob: float) -> float:
        """Probability, 0 to 1, that a caption with this text and log-probability is good."""
        score = self.slope * mean_log_prob(text, log_prob) + self.intercept
        return 1 / (1 + math.exp(-score)) if score > -700 else 0.0


def mean_log_prob(text: str, log_prob: float) -> float:
    """Mean log-probability of the words of a caption and its end token."""
    return log_prob / (len(text.split()) + 1)
