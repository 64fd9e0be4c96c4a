"""The ranges of activations that 8 bits stand for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Range = tuple[float, float]


def widen(ranges: dict[str, Range], found: Iterable[tuple[str, Array]], share: float = 0.0) -> None:
    """Extend ranges by the values of a batch of photos, (photos, …), without the `share` at either end of
    each photo's values."""
    for name, value in found:
        flat = value.reshape(len(value), -1)
        if share:
            low, high = np.quantile(flat[:, :: max(1, flat.shape[1] // 20_000)], [share, 1 - share], axis=1)
        else:
            low, high = flat.min(axis=1), flat.max(axis=1)
        before = ranges.get(name, (0.0, 0.0))
        ranges[name] = (min(before[0], float(low.min())), max(before[1], float(high.max())))


def affine(low: float, high: float) -> tuple[np.float32, np.uint8]:
    """The scale and zero point of 8 bits from `low` to `high`, with zero between them."""
    scale = max((high - low) / 255, 1e-8)
    return np.float32(scale), np.uint8(np.clip(round(-low / scale), 0, 255))
