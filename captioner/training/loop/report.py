"""Reports of a run: its records, as in `log.jsonl`, their text for people, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioner.files.destination import replacing
from captioner.training.config.train_options import TrainOptions


def mean_score(record: Mapping[str, Any]) -> float:
    """The score that selects the best epoch: CIDEr, or the share of labelled photos that are named,
    averaged over the data sets; -1 for a record without scores."""
    values = [_score(scores) or 0.0 for scores in record.get("val", {}).values()]
    return sum(values) / len(values) if values else -1.0


def _score(scores: Mapping[str, float]) -> float | None:
    return scores.get("cider", scores.get("named"))


def mean_losses(taken: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Average the losses of steps: the mean "loss", 0 without any step, and if several objectives make it up,
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
    """The line for an epoch, for a mean of runs, or for the model "before" the run."""
    if "before" in record:
        return f"before: {', '.join(_scores_in_words(*entry) for entry in record['before'].items())}"
    scores = [_scores_in_words(*entry) for entry in record.get("val", {}).items()]
    if "mean_of" in record:
        return f"{record['stage']}, mean of {record['mean_of']}: {', '.join(scores)}"
    parts = [losses_in_words(record), f"{record['seconds']:.0f} s", *scores]
    of = f" of {record['epochs']}" if "epochs" in record else ""
    return f"{record['stage']} {record['epoch']}{of}: {', '.join(parts)}"


def position_in_words(options: TrainOptions, saved: Mapping[str, Any]) -> str:
    """Where a saved run goes on."""
    number, epoch, _ = saved["position"]
    for stage in options.stages[number:]:
        if epoch < stage.epochs * stage.runs:
            return f"{stage.name} {epoch + 1} of {stage.epochs * stage.runs}"
        epoch = 0
    return "which has ended"


def _scores_in_words(source: str, values: Mapping[str, float]) -> str:
    names = {
        "cider": ("CIDEr", 1),
        "bleu_4": ("BLEU-4", 1),
        "perplexity": ("perplexity", 2),
        "named": ("named %", 1),
        "exactly": ("exactly %", 1),
    }
    shown = [f"{text} {values[name]:.{digits}f}" for name, (text, digits) in names.items() if name in values]
    return " ".join([source, *shown])


def plot_curves(history: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss and validation CIDEr by epoch, a line where a stage begins; written as PNG."""
    from matplotlib.figure import Figure  # slow to import, and only training plots

    epochs = range(1, len(history) + 1)
    figure = Figure(figsize=(8, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(epochs, [record.get("loss") for record in history], marker="o", color="tab:gray")
    upper.set_ylabel("training loss")
    for source in dict.fromkeys(name for record in history for name in record.get("val", {})):
        values = [_score(record.get("val", {}).get(source, {})) for record in history]
        lower.plot(epochs, values, marker="o", label=source)
    lower.set_ylabel("validation: CIDEr, or % named")
    lower.set_xlabel("epoch")
    if lower.lines:
        lower.legend()
    for number in range(1, len(history)):
        if history[number]["stage"] != history[number - 1]["stage"]:
            for axes in (upper, lower):
                axes.axvline(number + 0.5, color="tab:gray", linestyle=":")
            upper.annotate(history[number]["stage"], (number + 0.6, upper.get_ylim()[1]), va="top")
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120)
