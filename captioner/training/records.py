"""Records of a run: what an epoch lost and how its validation scored, as `log.jsonl` has them, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mean_cider(record: Mapping[str, Any]) -> float:
    """What the best epoch is chosen by: CIDEr, averaged over the data sets."""
    values = [scores["cider"] for scores in record.get("val", {}).values()]
    return sum(values) / len(values) if values else -1.0


def losses_in_words(record: Mapping[str, Any]) -> str:
    """What an epoch, or some steps of it, lost."""
    named = {"loss": "loss", "hint_error": "hint error"}
    return ", ".join(f"{named[name]} {record[name]:.3f}" for name in named if name in record)


def in_words(record: Mapping[str, Any]) -> str:
    """The line that tells of an epoch, or of a mean of runs."""
    scores = ", ".join(
        f"{source} CIDEr {values['cider']:.1f} BLEU-4 {values['bleu_4']:.1f}"
        f" perplexity {values['perplexity']:.2f}"
        for source, values in record.get("val", {}).items()
    )
    if "mean_of" in record:
        return f"{record['stage']}, mean of {record['mean_of']}: {scores}"
    return (
        f"{record['stage']} {record['epoch']}: {losses_in_words(record)}, {record['seconds']:.0f} s, {scores}"
    )
