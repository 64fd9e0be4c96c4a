"""The model card, and what it says of data and scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from captioner.metrics.tables import label, markdown
from captioner.model.bundle import DEFAULT_NAME
from captioner.training.config.train_options import TrainOptions

TABLE = "<!-- scores -->"
"""The line of a model card that the table of scores replaces."""
_TERMS = {DEFAULT_NAME: ": research and evaluation only"}
SHOWN = ("cider", "bleu_4", "rouge_l", "named", "exactly")
"""Scores of validation in training that the table has."""


def default_card(name: str, options: TrainOptions) -> str:
    """A minimal model card; its author adds the training data and the weaknesses."""
    lines = [f"# {name}", "", "Trained with `captioner train`; the configuration is in bundle.json.", ""]
    if options.start:
        start = without_folders(options.start)
        lines += [
            f"It started from the model {start}, whose terms of use hold for it too{_TERMS.get(start, '')}.",
            "",
        ]
    captions = [without_folders(source.captions or source.labels or "classes") for source in options.data]
    data = [f"- {source.name} ({text})" for source, text in zip(options.data, captions, strict=True)]
    return "\n".join([*lines, "## Data", "", *data, "", "## Validation scores", "", TABLE, ""])


def table_of(scores: Mapping[str, Mapping[str, float]]) -> str:
    """The main scores of validation in training."""
    names = [name for name in SHOWN if any(name in values for values in scores.values())]
    rows = (
        [source, *(f"{values[name]:.1f}" if name in values else "" for name in names)]
        for source, values in scores.items()
    )
    return markdown(["data", *map(label, names)], rows)


def without_folders(value: Any) -> Any:
    """`value` with only the last part of absolute paths: the others tell who trained, and where."""
    if isinstance(value, str):
        kinds = (PurePosixPath(value), PureWindowsPath(value))
        return next((path.name for path in kinds if path.is_absolute() or value.startswith("~")), value)
    if isinstance(value, dict):
        return {name: without_folders(one) for name, one in value.items()}
    return [*map(without_folders, value)] if isinstance(value, list | tuple) else value
