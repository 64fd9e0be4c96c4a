"""A plot of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


def plot_curves(history: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss and validation CIDEr by epoch, a line where a stage begins; written as PNG."""
    from matplotlib.figure import Figure  # slow to import, and only training plots

    epochs = range(1, len(history) + 1)
    figure = Figure(figsize=(8, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(epochs, [record.get("loss") for record in history], marker="o", color="tab:gray")
    upper.set_ylabel("training loss")
    for source in dict.fromkeys(name for record in history for name in record.get("val", {})):
        values = [
            record.get("val", {})
            .get(source, {})
            .get("cider", record.get("val", {}).get(source, {}).get("named"))
            for record in history
        ]
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
    aside = path.with_name(path.name + ".part")
    figure.savefig(aside, format="png", dpi=120)
    aside.replace(path)
