"""Names of devices, which commands and settings check before they load a model."""

from __future__ import annotations

import re

from captioner.errors import OptionsError

DEVICES = "auto|cpu|cuda|cuda:N"
DEVICE_HELP = "auto uses CUDA if it works; cuda fails if it does not; cuda:N is the GPU of that number"


def check_device(device: str) -> str:
    """The device itself. Raises `OptionsError` unless it is auto, cpu, cuda or cuda:N."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        raise OptionsError(f"device must be one of auto, cpu, cuda and cuda:N, got {device!r}", "device")
    return device
