"""Where features are while a run trains: in the memory of its GPU if they fit, else in mapped files."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

Features = np.ndarray | Tensor
SHARE = 0.5
"""Features may take this share of the GPU's free memory; the model, its gradients and a batch need the
rest."""
_COPIED_AT_ONCE = 2**26  # bytes


def room(device: torch.device) -> int:
    """Bytes that features may take on a device: none on a CPU, where mapped files are as fast."""
    return int(SHARE * torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else 0


def place(arrays: Sequence[np.ndarray], device: torch.device, most: int | None = None) -> list[Features]:
    """The arrays on the device if all of them together take at most so many bytes (None: its `room`);
    otherwise as they are."""
    if sum(array.nbytes for array in arrays) > (room(device) if most is None else most):
        return list(arrays)
    return [_moved(array, device) for array in arrays]


def _moved(array: np.ndarray, device: torch.device) -> Tensor:
    moved = torch.empty(array.shape, dtype=torch.from_numpy(array[:0].copy()).dtype, device=device)
    rows = max(1, _COPIED_AT_ONCE // max(1, math.prod(array.shape[1:]) * array.itemsize))
    for start in range(0, len(array), rows):
        moved[start : start + rows] = torch.from_numpy(np.array(array[start : start + rows]))
    return moved


def take(features: Features, places: Sequence[Tensor], device: torch.device) -> Tensor:
    """The features on the device at `places`, int64 (batch,) on the CPU for each of the first axes."""
    if isinstance(features, Tensor):
        return features[tuple(sent(place, device) for place in places)]
    return sent(torch.from_numpy(features[tuple(place.numpy() for place in places)]), device)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on the device, without waiting for what a GPU still has to do."""
    if device.type == "cuda" and values.numel():
        values = values.pin_memory()
    return values.to(device, non_blocking=True)
