"""The spread of attention maps, and the differences between them.

Maps are (maps, cells) and treated as distributions: the share of a visual sentinel is ignored.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_FLAT = 1e-6
"""Maps that deviate less than this from their mean have no correlation with others."""


def normalized(maps: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Normalize (maps, cells) to sum to 1; a map of zeros becomes uniform."""
    weights = np.asarray(maps, dtype=np.float64)
    total = weights.sum(axis=-1, keepdims=True)
    uniform = np.full_like(weights, 1 / weights.shape[-1])
    return np.divide(weights, total, out=uniform, where=total > 0)


def perplexity(maps: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Effective number of cells of each map, (maps,): the exponential of its entropy, from 1 to all cells."""
    return np.exp2(_entropy(normalized(maps)))


def divergence(maps: npt.ArrayLike) -> float:
    """Mean Jensen-Shannon divergence of all pairs, in bits: 0 for equal maps, 1 for maps that share no cell.
    NaN for fewer than two maps."""
    weights = normalized(maps)
    first, second = np.triu_indices(len(weights), 1)
    if not len(first):
        return float("nan")
    entropy = _entropy(weights)
    mixed = _entropy((weights[first] + weights[second]) / 2)
    return float(np.mean(mixed - (entropy[first] + entropy[second]) / 2))


def correlation(maps: npt.ArrayLike) -> float:
    """Mean Pearson correlation of all pairs; NaN where fewer than two maps have any place that stands out."""
    weights = normalized(maps)
    weights = weights[weights.std(axis=1) > _FLAT]
    if len(weights) < 2:
        return float("nan")
    return float(np.corrcoef(weights)[np.triu_indices(len(weights), 1)].mean())


def _entropy(weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Entropy in bits, over the last axis."""
    return -np.sum(weights * np.log2(weights, out=np.zeros_like(weights), where=weights > 0), axis=-1)
