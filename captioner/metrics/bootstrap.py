"""Confidence intervals of scores, and of the difference of two systems, by resampling images.

Every score here is a function of statistics that are summed over images, so that a resample is a sum with
other weights: corpus BLEU is computed anew from each, and CIDEr-D keeps the document frequencies of the
whole corpus. Percentile bootstrap: Efron and Tibshirani 1993; paired, for systems: Koehn 2004,
"Statistical Significance Tests for Machine Translation Evaluation".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SAMPLES = 1000
"""Resamples, unless others are asked for."""
_CHUNK = 128  # resamples at a time, which bounds memory to _CHUNK * images


@dataclass(frozen=True, slots=True)
class Statistics:
    """The per-image statistics of one metric."""

    per_image: Array
    """Statistics per image, (images, k)."""
    combine: Callable[[Array], Array]
    """Turns sums over images, (…, k), into scores, (…, scores)."""

    def score(self) -> Array:
        """Scores over all images, (scores,)."""
        return self.combine(self.per_image.sum(axis=0))


def mean_of(scores: Sequence[float] | Array) -> Statistics:
    """Statistics of a metric whose score is the mean over images."""
    values = np.asarray(scores, dtype=np.float64)
    return Statistics(
        per_image=np.stack([values, np.ones_like(values)], axis=-1),
        combine=lambda sums: sums[..., :1] / sums[..., 1:],
    )


def resampled_scores(statistics: Sequence[Statistics], samples: int, seed: int) -> Array:
    """Scores of `samples` resamples of the images, (samples, all scores concatenated).

    The same seed draws the same images, so that the resamples of two systems are paired.
    """
    images = len(statistics[0].per_image)
    drawn = [
        np.concatenate([metric.combine(counts @ metric.per_image) for metric in statistics], axis=-1)
        for counts in _draws(images, samples, seed)
    ]
    return np.concatenate(drawn)


def _draws(images: int, samples: int, seed: int) -> Iterator[Array]:
    """Number of occurrences of each image in each resample, (up to _CHUNK, images)."""
    generator = np.random.default_rng(seed)
    for start in range(0, samples, _CHUNK):
        size = min(_CHUNK, samples - start)
        yield generator.multinomial(images, np.full(images, 1 / images), size=size).astype(np.float64)


def interval(resampled: Array) -> tuple[float, float]:
    """The percentile interval of (samples,) resampled scores: 95% of them lie in it."""
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(low), float(high)


def p_value(differences: Array) -> float:
    """Two-sided p-value of paired differences (samples,): twice the share on the rarer side of zero.

    The measured difference counts as one resample, so that a finite number of them never gives 0.
    """
    rarer = min(np.sum(differences <= 0), np.sum(differences >= 0))
    return min(1.0, 2 * float(rarer + 1) / (len(differences) + 1))
