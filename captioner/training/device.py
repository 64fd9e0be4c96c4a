"""The device that PyTorch trains on."""

from __future__ import annotations

import torch

from captioner.errors import DeviceError


def torch_device(name: str) -> torch.device:
    """ "cpu", "cuda", "cuda:N" or "auto" as a device. Raises `DeviceError` if there is none."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name.startswith("cuda") and not found:
        raise DeviceError(f"{name.upper()} cannot be used: PyTorch finds no GPU")
    if int(name.partition(":")[2] or 0) >= max(1, found):
        raise DeviceError(
            f"{name.upper()} cannot be used: the last GPU that PyTorch finds is cuda:{found - 1}"
        )
    if name == "auto":
        name = "cuda" if found else "cpu"
    return torch.device(name)
