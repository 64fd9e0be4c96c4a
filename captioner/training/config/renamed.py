"""Option names of earlier versions, as in older configurations, checkpoints and bundles.

In earlier versions, the options of all objectives were options of the stage, and the search and the networks
that objectives learn from were options of the run. Rewards were options of `self_critical`,
and bonuses options of the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from captioner.nn.decoder.bonus import BonusOptions
from captioner.options import BUNDLE_OPTIONS

_LEFT_OPEN = -1
"""What stood for an option that was left open, in checkpoints."""
STAGE_OPTIONS = {
    "label_smoothing": ("cross_entropy", "label_smoothing"),
    "doubly_stochastic": ("doubly_stochastic", "weight"),
    "attention_entropy": ("attention_entropy", "weight"),
    "hard_reward": ("hard_attention", "reward"),
    "hard_entropy": ("hard_attention", "entropy"),
    "word_detection": ("bag_of_words", "weight"),
    "distillation": ("distillation", "weight"),
    "hints": ("feature_distillation", "weight"),
    "samples": ("self_critical", "samples"),
    "temperature": ("self_critical", "temperature"),
    "min_references": ("self_critical", "min_references"),
    "contrast": ("self_critical", "contrast"),
}
"""Old option of a stage -> its objective, and the option there."""
RUN_OPTIONS = {
    "teachers": ("distillation", "teachers"),
    "hint_network": ("feature_distillation", "network"),
    "hint_normalization": ("feature_distillation", "normalization"),
}
"""Old option of a run -> the objective, in every stage that has it, and the option there."""
BONUSES = tuple(field.name for field in dataclasses.fields(BonusOptions))
"""Bonuses that were options of the model."""
REWARDS = ("contrast", "objects", "words", "naming")
"""Rewards that were options of `self_critical`."""
OF_OBJECTIVE: dict[str, tuple[str, ...]] = {
    "cross_entropy": (
        "cross_entropy",
        "doubly_stochastic",
        "attention_entropy",
        "hard_attention",
        "bag_of_words",
        "distillation",
        "feature_distillation",
    ),
    "self_critical": ("self_critical", "distillation", "feature_distillation"),
}
"""The old `objective` of a stage -> the objectives that were added up in it."""
ALWAYS = ("cross_entropy", "doubly_stochastic", "hard_attention", "self_critical")
"""Objectives that needed no weight."""


def renamed(values: Any) -> Any:
    """A copy of the tables of a run with the current names; invalid ones are returned unchanged."""
    if not isinstance(values, Mapping) or not isinstance(values.get("stages"), list | tuple):
        return values
    values = _with_search(values)
    if "model" in values:
        values = {**values, "model": with_bonus(values["model"])}
    stages = values["stages"]
    of_run = {target: values[old] for old, target in RUN_OPTIONS.items() if old in values}
    kept = {name: value for name, value in values.items() if name not in RUN_OPTIONS}
    kept["stages"] = [_stage(stage, of_run) if isinstance(stage, Mapping) else stage for stage in stages]
    return kept


def with_bonus(model: Any) -> Any:
    """The table of a model, with the bonuses that were its own options in its table `bonus`, over what is
    there; invalid ones are returned unchanged."""
    if not isinstance(model, Mapping):
        return model
    old = {name: value for name, value in model.items() if name in BONUSES}
    given = model.get("bonus", {})
    if not old or not isinstance(given, Mapping):
        return model
    return {**{name: value for name, value in model.items() if name not in old}, "bonus": {**given, **old}}


def _with_search(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the search options of the run in its table `search`, over what is there."""
    old = {name: value for name, value in values.items() if name in BUNDLE_OPTIONS}
    given = values.get("search", {})
    if not old or not isinstance(given, Mapping):
        return values
    kept = {name: value for name, value in values.items() if name not in old}
    chosen = {name: value for name, value in old.items() if value != _LEFT_OPEN}
    return {**kept, "search": {**given, **chosen}}


def _stage(stage: Mapping[str, Any], of_run: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    old = {name: stage[name] for name in ("objective", *STAGE_OPTIONS) if name in stage}
    kept = {name: value for name, value in stage.items() if name not in old}
    given = stage.get("objectives", {})
    if not isinstance(given, Mapping):
        return dict(stage)
    objectives = {
        name: dict(value) if isinstance(value, Mapping) else {"weight": value}
        for name, value in given.items()
    }
    if old:
        main = str(old.get("objective", "cross_entropy"))
        added = OF_OBJECTIVE.get(main, (main,))  # an unknown objective is reported like any other
        if not objectives:
            objectives = {name: {} for name in added if name in ALWAYS or added == (name,)}
        for name, (objective, option) in STAGE_OPTIONS.items():
            if name not in old or (objective not in added and objective not in objectives):
                continue
            if option == "weight" and not old[name]:
                objectives.pop(objective, None)
            else:
                objectives.setdefault(objective, {})[option] = old[name]
        if "distillation" in objectives and "distillation" in old and "cross_entropy" in objectives:
            # It was a share of the likelihood.
            objectives["cross_entropy"].setdefault("weight", 1 - old["distillation"])
    if "self_critical" in objectives:
        objectives["self_critical"] = _with_rewards(objectives["self_critical"])
    for (objective, option), value in of_run.items():
        if objective in objectives and value:
            objectives[objective].setdefault(option, value)
    return {**kept, "objectives": objectives} if objectives else kept


def _with_rewards(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `self_critical`, with those that were rewards in the table of rewards."""
    kept = {name: value for name, value in options.items() if name not in REWARDS}
    moved = {name: value for name, value in options.items() if name in REWARDS}
    given = kept.get("rewards", {})
    return {**kept, "rewards": {**moved, **given}} if moved and isinstance(given, Mapping) else dict(options)
