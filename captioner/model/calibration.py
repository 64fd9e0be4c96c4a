"""Confidence: the calibrated probability that a caption is good.

The probability that the model gives a caption is a poor measure: long captions are improbable. The mean
log-probability per token separates good captions from bad ones, and Platt scaling (Platt 1999), a logistic
curve fitted on unseen images, turns it into the probability of a verifiable event, which the bundle
describes. `benchmarks/calibration.py` fits the curve and plots its reliability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted logistic curve."""

    slope: float
    intercept: float
    event: str
    """The event that confidence is the probability of."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self | None:
        """The calibration in `bundle.json`; None if there is none."""
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
