"""The NVIDIA driver and the libraries of CUDA that ONNX Runtime finds, each with the place it comes from."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable
from pathlib import Path

DRIVER = "libcuda.so.1"
_VERSIONS = {12: ("12", "11"), 13: ("13", "12")}
"""By the major version of CUDA that ONNX Runtime was built with: those of most libraries, and of cuFFT."""
_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_LOADED = Path("/proc/self/maps")


def found() -> dict[str, str]:
    """To be called after a session was tried: the libraries that it loaded are those that are found."""
    facts: dict[str, str] = {"driver": _driver()}
    if sys.platform != "linux" or (onnxruntime := sys.modules.get("onnxruntime")) is None:
        return facts
    built_with = str(getattr(onnxruntime, "cuda_version", "") or "")
    facts["built with"] = f"CUDA {built_with}" if built_with else "no CUDA: ONNX Runtime is that for the CPU"
    if built_with:
        facts |= libraries(needed(int(built_with.partition(".")[0])))
    return facts


def needed(major: int) -> tuple[str, ...]:
    """Names of the libraries that ONNX Runtime built with this major version of CUDA loads."""
    most, cufft = _VERSIONS.get(major, _VERSIONS[max(_VERSIONS)])
    same = (f"lib{name}.so.{most}" for name in ("cudart", "cublas", "cublasLt", "nvrtc"))
    return (DRIVER, *same, f"libcufft.so.{cufft}", "libcurand.so.10", "libcudnn.so.9")


def libraries(names: Iterable[str]) -> dict[str, str]:
    """Where each library was loaded from, or that it is missing."""
    return {name: _place(name) for name in names}


def _place(name: str) -> str:
    try:
        ctypes.CDLL(name)  # one that is loaded already is found by its name
    except OSError as error:
        return f"MISSING ({str(error).splitlines()[0]})" if str(error) else "MISSING"
    stem = name.partition(".so")[0]
    with _LOADED.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = Path(line.rstrip("\n")[73:].strip() or "-")
            if path.name == name or re.match(rf"{re.escape(stem)}\.so(\.|$)", path.name):
                return f"{path} ({_owner(path)})"
    return "loaded"


def _owner(path: Path) -> str:
    """Who brought a library."""
    if "nvidia" in path.parts and "site-packages" in path.parts:
        return "NVIDIA's package"
    return "PyTorch" if "torch" in path.parts else "the system"


def _driver() -> str:
    try:
        return _DRIVER_VERSION.read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return "none is loaded"
