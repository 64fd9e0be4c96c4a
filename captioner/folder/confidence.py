"""Whether to believe a caption: a probability, calibrated on captions that people wrote.

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

from captioner.errors import OptionsError


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted curve."""

    slope: float
    intercept: float
    event: str
    """What the probability is of."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Self:
        """The calibration in a bundle's `bundle.json`. Raises `OptionsError` when there is none."""
        try:
            entry = manifest["confidence"]
            return cls(float(entry["slope"]), float(entry["intercept"]), str(entry["event"]))
        except (KeyError, TypeError, ValueError):
            raise OptionsError(
                "this model's confidence has not been calibrated, which --min-confidence needs",
                "min_confidence",
            ) from None

    def confidence(self, record: Mapping[str, Any]) -> float:
        """Of a caption as the model gave it, from 0 to 1."""
        score = self.slope * mean_log_prob(record) + self.intercept
        return 1 / (1 + math.exp(-score)) if score > -700 else 0.0


def mean_log_prob(record: Mapping[str, Any]) -> float:
    """Mean log-probability of the words of a caption and its end token."""
    return float(record["log_prob"]) / (len(record["caption"].split()) + 1)


@dataclass(frozen=True, slots=True)
class ConfidenceFilter:
    """Leaves out captions that the model does not believe. Raises `OptionsError`."""

    calibration: Calibration
    minimum: float

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= 1:
            raise OptionsError(f"--min-confidence must be from 0 to 1, got {self.minimum}", "min_confidence")

    def shape(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """A record with the confidence of its caption, or with an error in the caption's place."""
        if "caption" not in record:
            return record
        confidence = round(self.calibration.confidence(record), 4)
        if confidence < self.minimum:
            message = f"confidence {confidence} is below {self.minimum}"
            return {"image": record["image"], "error": {"code": "low_confidence", "message": message}}
        return {**record, "confidence": confidence}
