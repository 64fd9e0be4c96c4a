"""Scores of captions on stdout: as JSON, and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from captioner.cli.table import print_table
from captioner.printable import counted

if TYPE_CHECKING:
    from captioner.metrics import Comparison, Scores


def scores_to_json(scores: Scores) -> dict[str, Any]:
    """The JSON object for `--json`."""
    return {
        **scores.to_dict(),
        "intervals": {name: _times_100(interval) for name, interval in scores.intervals.items()},
    }


def comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    """The JSON object for `--json` beside `--compare`."""
    return {
        "first": scores_to_json(comparison.first),
        "second": scores_to_json(comparison.second),
        "differences": {
            name: {
                "value": round(100 * difference.value, 4),
                "interval": _times_100(difference.interval),
                "p_value": round(difference.p_value, 4),
            }
            for name, difference in comparison.differences.items()
        },
    }


def _times_100(interval: tuple[float, float]) -> list[float]:
    return [round(100 * bound, 4) for bound in interval]


def print_scores(scores: Scores) -> None:
    """Print a table to stdout."""
    from captioner.metrics.tables import interval, label, statistics

    rows = [
        [label(name), f"{100 * value:.2f}", interval(scores.intervals[name])]
        for name, value in scores.values.items()
    ]
    print_table(
        [counted(scores.images, "image"), "score", "95% interval"],
        rows,
        list(map(list, statistics(scores).items())),
    )


def print_comparison(comparison: Comparison, names: Sequence[str]) -> None:
    """Print a table of two systems, by their names, to stdout."""
    from captioner.metrics.tables import interval, label, statistics

    first, second = comparison.first, comparison.second
    rows = [
        [
            label(name),
            f"{100 * first.values[name]:.2f}",
            f"{100 * second.values[name]:.2f}",
            f"{100 * difference.value:+.2f}",
            interval(difference.interval, "+.2f"),
            f"{difference.p_value:.3f}",
        ]
        for name, difference in comparison.differences.items()
    ]
    heads = [counted(first.images, "image"), *names, "change", "95% interval", "p"]
    others = statistics(second)
    print_table(heads, rows, [[name, value, others[name]] for name, value in statistics(first).items()])
