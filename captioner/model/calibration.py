"""Confidence: the calibrated probability that a caption is good.

The probability that the model gives a caption is a poor measure: long captions are improbable. The mean
log-probability per token separates good captions from bad ones, and Platt scaling (Platt 1999), a logistic
curve fitted on unseen images, turns it into the probability of a verifiable event, which the bundle
describes. `benchmarks/calibration.py` fits the curve and plots its reliability.

Words follow each other easily in captions of things that the model does not know, too. So models with classes
(`captioner.nn.decoder.bonus.evidence`) also tell their certainty: how sure they are of what the photo shows,
minus the entropy of its classes in nats. A second curve is for the mean log-probability plus
`CERTAINTY_WEIGHT` times the certainty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

CERTAINTY = "certainty"
"""The output of an encoder with the certainty, float (batch, 1)."""
CERTAINTY_WEIGHT = 0.1
"""The best weight is 0.05 to 0.1 on photos with captions, and more on photos of rare things
(docs/research/experiments/embedded.md)."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How confidence is computed from log-probabilities: fitted logistic curves."""

    slope: float
    intercept: float
    event: str
    """The event that confidence is the probability of."""
    with_certainty: tuple[float, float] | None = None
    """Slope and intercept for captions whose certainty is known."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self | None:
        """The calibration in `bundle.json`; None if there is none."""
        try:
            entry = manifest["confidence"]
            known = entry.get("with_certainty")
            return cls(*_curve(entry), str(entry["event"]), known and _curve(known))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            return None

    def to_dict(self) -> dict[str, float | str]:
        """What servers tell: the curve for captions whose certainty is not known, as it is for clients."""
        return {"slope": self.slope, "intercept": self.intercept, "event": self.event}

    def confidence(self, text: str, log_prob: float, certainty: float | None = None) -> float:
        """Probability, 0 to 1, that a caption with this text and log-probability is good. `certainty` is that
        of its photo, if the model told it."""
        if certainty is None or self.with_certainty is None:
            slope, intercept, certainty = self.slope, self.intercept, None
        else:
            slope, intercept = self.with_certainty
        score = slope * goodness(text, log_prob, certainty) + intercept
        return 1 / (1 + math.exp(-score)) if score > -700 else 0.0


def _curve(entry: Mapping[str, Any]) -> tuple[float, float]:
    """Slope and intercept. Raises `ValueError` for those that no curve has."""
    slope, intercept = float(entry["slope"]), float(entry["intercept"])
    if not (math.isfinite(slope) and math.isfinite(intercept)):
        raise ValueError
    return slope, intercept


def goodness(text: str, log_prob: float, certainty: float | None) -> float:
    """What the curves read, the larger the better, in nats."""
    score = mean_log_prob(text, log_prob)
    return score if certainty is None else score + CERTAINTY_WEIGHT * certainty


def mean_log_prob(text: str, log_prob: float) -> float:
    """Mean log-probability of the words of a caption and its end token."""
    return log_prob / (len(text.split()) + 1)
