"""The confidence of captions, fitted on validation images (`captioner.model.calibration`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from captioner.metrics.cider import CorpusCider
from captioner.metrics.naming import has_phrase
from captioner.model.calibration import goodness
from captioner.training.data.examples import Example
from captioner.words.tokens import tokenize

CLOSE = "as close to people's captions (CIDEr-D) as the median human caption"
NAMED = "one of the photo's words is in the caption"
FEWEST = 200
"""Minimum number of images; a curve fitted to fewer says little."""

_LEAST_CURVATURE = 1e-9 * np.eye(2)
"""Added, so that equal scores, which fit any slope, have one."""


class Said(NamedTuple):
    """A caption, and what tells how good it is."""

    text: str
    log_prob: float
    certainty: float | None


def calibrate(examples: Sequence[Example], captions: Sequence[Said]) -> dict[str, Any] | None:
    """The entry `confidence` of a bundle, from captions of validation images.

    It is fitted to the images with several human captions or, if these are too few, to the labelled ones.
    Never to both: the two events have different rates, and a curve through both would only tell the two kinds
    of photos apart. None if there are fewer than `FEWEST` images, or the captions are all good or all bad.
    """
    texts = [said.text for said in captions]
    for good, event in ((are_close(examples, texts), CLOSE), (_named(examples, texts), NAMED)):
        truth = np.array(list(good.values()), dtype=bool)
        if len(good) < FEWEST or truth.all() or not truth.any():
            continue
        return curves([captions[row] for row in good], truth, event)
    return None


def curves(captions: Sequence[Said], good: npt.NDArray[np.bool_], event: str) -> dict[str, Any]:
    """The entry `confidence` of a bundle, from captions of which it is known whether they are `good`."""

    def curve(with_certainty: bool) -> dict[str, float]:
        scores = [
            goodness(text, log_prob, certainty if with_certainty else None)
            for text, log_prob, certainty in captions
        ]
        slope, intercept = fit_platt(np.array(scores), good)
        return {"slope": round(slope, 5), "intercept": round(intercept, 5)}

    entry: dict[str, Any] = {**curve(False), "event": event}
    if any(said.certainty is not None for said in captions):
        entry["with_certainty"] = curve(True)
    return entry


def are_close(examples: Sequence[Example], texts: Sequence[str]) -> dict[int, bool]:
    """For each image, whether its caption is at least as close to the human captions other than the first as
    the median first caption is."""
    rows = [row for row, example in enumerate(examples) if len(example.image.captions) > 1]
    if not rows:
        return {}
    captions = [[tokenize(text) for text in examples[row].image.captions] for row in rows]
    reward = CorpusCider([others for _, *others in captions])
    median = np.median(reward.scores(range(len(rows)), [first for first, *_ in captions]))
    closeness = reward.scores(range(len(rows)), [tokenize(texts[row]) for row in rows])
    return {row: bool(close >= median) for row, close in zip(rows, closeness, strict=True)}


def _named(examples: Sequence[Example], texts: Sequence[str]) -> dict[int, bool]:
    return {
        row: any(has_phrase(texts[row].split(), tokenize(word)) for word in example.image.words)
        for row, example in enumerate(examples)
        if example.image.words
    }


def fit_platt(scores: npt.NDArray[np.float64], good: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and intercept of the maximum-likelihood logistic curve, by Newton's method, with Platt's targets,
    which keep it finite (Platt 1999)."""
    positives, negatives = int(good.sum()), int((~good).sum())
    targets = np.where(good, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    design = np.stack([scores, np.ones_like(scores)], axis=1)
    weights = np.zeros(2)
    for _ in range(100):
        p = 1 / (1 + np.exp(-(design @ weights)))
        curvature = (design.T * (p * (1 - p))) @ design + _LEAST_CURVATURE
        step = np.linalg.solve(curvature, design.T @ (targets - p))
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    return float(weights[0]), float(weights[1])
