"""Filters captions by their calibrated confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from captioner.errors import LowConfidenceError, OptionsError
from captioner.folder.transform import Record
from captioner.model.calibration import Calibration
from captioner.results import error_to_dict


def check_minimum(minimum: float) -> None:
    """Raise `OptionsError` for a least confidence that is no probability."""
    if not 0 <= minimum <= 1:
        raise OptionsError(f"--min-confidence must be from 0 to 1, got {minimum}", "min_confidence")


def check_calibrated(calibration: Calibration | None, flag: str) -> None:
    """Raise `OptionsError` if the model has no calibration, which `flag` needs."""
    if calibration is None:
        raise OptionsError(f"this model's confidence has not been calibrated, which {flag} needs")


@dataclass(frozen=True, slots=True)
class ConfidenceFilter:
    """Replaces captions of low confidence with an error. Raises `OptionsError` for a threshold out of
    range."""

    calibration: Calibration | None
    """None if all records have a confidence."""
    minimum: float

    def __post_init__(self) -> None:
        check_minimum(self.minimum)

    @classmethod
    def of(cls, calibration: Calibration | None, minimum: float) -> Self:
        """Raises `OptionsError` if the model has no calibration."""
        check_calibrated(calibration, "--min-confidence")
        return cls(calibration, minimum)

    def transform(self, record: Record) -> Record:
        """The record with the confidence of its caption, or with an error in place of a caption of low
        confidence. Raises `OptionsError` for a caption of a model whose confidence cannot be told."""
        if "caption" not in record:
            return record
        confidence = record.get("confidence")
        if confidence is None and self.calibration is None:
            if "log_prob" not in record:  # a person wrote it
                return record
            raise OptionsError(
                "the captions have no confidence, which --min-confidence needs", "min_confidence"
            )
        if confidence is None:  # captioned by an older version
            assert self.calibration is not None
            confidence = round(self.calibration.confidence(record["caption"], record["log_prob"]), 4)
        if confidence < self.minimum:
            error = LowConfidenceError(f"confidence {confidence} is below {self.minimum}")
            return error_to_dict(record["image"], error)
        return {**record, "confidence": confidence}
