"""Photos that look the same: copies in other sizes and formats, and shots of a series.

Each photo is reduced to 64 bits, which say where it becomes brighter from left to right (dHash). Few bits
differ between photos that look alike.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

_SIDE = 8
_BITS = np.array([number.bit_count() for number in range(256)], dtype=np.uint8)
_MOST_BITS = 6
"""Most bits in which photos that look alike differ."""


def fingerprint(photo: Image.Image) -> int:
    """The 64 bits of a photo; 0 for one without any structure."""
    grey = np.asarray(photo.convert("L").resize((_SIDE + 1, _SIDE), Image.Resampling.BOX), dtype=np.int16)
    bits = (grey[:, 1:] > grey[:, :-1]).ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def group(fingerprints: Sequence[int]) -> list[list[int]]:
    """Groups of the numbers of photos that look alike, in order; those without a similar one are left out."""
    prints = np.array(fingerprints, dtype=np.uint64)
    leader = list(range(len(prints)))

    def find(number: int) -> int:
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    for number in range(len(prints) - 1):
        if not prints[number]:
            continue
        alike = np.flatnonzero(_bits(prints[number] ^ prints[number + 1 :]) <= _MOST_BITS) + number + 1
        for other in alike[prints[alike] != 0].tolist():
            leader[find(other)] = find(number)
    groups: dict[int, list[int]] = {}
    for number in range(len(prints)):
        groups.setdefault(find(number), []).append(number)
    return [numbers for numbers in groups.values() if len(numbers) > 1]


def _bits(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """How many bits of each are set."""
    return np.asarray(_BITS[values.view(np.uint8)].reshape(len(values), 8).sum(axis=1, dtype=np.int64))
