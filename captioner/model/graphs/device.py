"""Names of devices, which commands and settings check before they load a model; the libraries of CUDA."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from captioner.errors import OptionsError

DEVICES = "auto|cpu|cuda|cuda:N"
DEVICE_HELP = "auto uses CUDA if it works; cuda fails if it does not; cuda:N is the GPU of that number"


def check_device(device: str) -> str:
    """The device itself. Raises `OptionsError` unless it is auto, cpu, cuda or cuda:N."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,9})?", device):
        raise OptionsError(f"device must be one of auto, cpu, cuda and cuda:N, got {device!r}", "device")
    return device


def cuda_options(gpu: int) -> dict[str, str]:
    """Options of ONNX Runtime's CUDA provider for this GPU: 0 is the first."""
    # TF32, the default, keeps 10 bits of a factor: 1 to 2 of 100 captions were not those of the CPU.
    options = {"use_tf32": "0"}
    # Since 1.26, ONNX Runtime warns of each session with a device_id that it found no plugin for CUDA. GPU 0
    # is the default and need not be named; with others the warning stays.
    return options | {"device_id": str(gpu)} if gpu else options


def preload_cuda(onnxruntime: Any) -> None:
    """Load CUDA and cuDNN for ONNX Runtime, which itself looks for NVIDIA's wheels only beside its own one.

    It may be elsewhere than they are: in a folder that only adds to a Python, whose PyTorch has brought them.
    """
    beside = Path(onnxruntime.__file__).parents[1] / "nvidia"
    for folder in () if _libraries(beside) else _elsewhere():
        onnxruntime.preload_dlls(directory=str(folder))
    onnxruntime.preload_dlls()


def _elsewhere() -> list[Path]:
    """The folders of libraries in the first place that has some: of two copies, one should be loaded."""
    found = importlib.util.find_spec("nvidia")
    places = found.submodule_search_locations if found else None
    return next(filter(None, (_libraries(Path(place)) for place in places or ())), [])


def _libraries(package: Path) -> list[Path]:
    return sorted(package.glob("*/lib"))
