"""Photos that are missing or damaged: all are named, and left out if they are few."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from captioner.errors import DataError
from captioner.training.data.cache import FeatureCache
from captioner.training.data.examples import Example


def usable(
    examples: Sequence[Example],
    compute: Callable[[Sequence[Example]], FeatureCache],
    share: float,
    note: Callable[[str], None],
) -> tuple[list[Example], FeatureCache]:
    """The examples whose photos can be read, and their features; `compute` gives those of examples that are
    there. Each other photo is named to `note`. Raises `DataError` if these are more than the `share` of
    all."""
    there, faults = [], []
    for example in examples:
        try:
            _ = example.digest
            there.append(example)
        except DataError as error:
            faults.append(f"{example.key}: {error}")
    features = compute(there)
    faults += [f"{there[row].key}: {fault}" for row, fault in features.damaged.items()]
    for text in faults:
        note(f"left out: {text}")
    if len(faults) > share * len(examples):
        raise DataError(
            f"{len(faults)} of {len(examples)} photos are missing or damaged, more than damaged_share ="
            f" {share:g} allows; the first is {faults[0]}"
        )
    rows = [row for row in range(len(there)) if row not in features.damaged]
    return [there[row] for row in rows], features.select(rows)
