"""Records of a run: what an epoch lost and how its validation scored, as `log.jsonl` has them, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def mean_cider(record: Mapping[str, Any]) -> float:
    """What the best epoch is chosen by: CIDEr, averaged over the data sets."""
    values = [scores["cider"] for scores in record.get("val", {}).values()]
    return sum(values) / len(values) if values else -1.0


def mean_losses(taken: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Of the losses of steps: the mean "loss", 0 without any step, and if several objectives make it up,
    "losses", the mean of each, unweighted, over the steps that have it."""
    steps: dict[str, list[float]] = {"loss": []}
    for step in taken:
        for name, value in step.items():
            steps.setdefault(name, []).append(value)
    means = {name: sum(values) / max(1, len(values)) for name, values in steps.items()}
    loss = means.pop("loss")
    return {"loss": loss, "losses": means} if len(means) > 1 else {"loss": loss}


def losses_in_words(record: Mapping[str, Any]) -> str:
    """The losses of an epoch, or of some of its steps."""
    parts = ", ".join(f"{name} {value:.3f}" for name, value in record.get("losses", {}).items())
    return f"loss {record['loss']:.3f}" + (f" ({parts})" if parts else "")


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
