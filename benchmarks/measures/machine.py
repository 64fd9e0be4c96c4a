"""The machine that figures are from, and whether it was quiet."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = ("captioner", "onnxruntime", "onnxruntime-gpu", "numpy", "pillow", "torch")
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp")


def describe() -> dict[str, Any]:
    """Processor, cores, memory, versions, and the load before anything was measured."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    info = _cpu_info()
    flags = info.get("flags", info.get("Features", "")).split()
    return {
        "cpu": info.get("model name", platform.processor() or platform.machine()),
        "instructions": [flag for flag in _FLAGS if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": versions,
        "load_before": round(os.getloadavg()[0], 2),
    }


def gpu() -> dict[str, str]:
    """The name, memory and driver of the first GPU, where there is one."""
    fields = "--query-gpu=name,memory.total,driver_version"
    try:
        done = subprocess.run(
            ["nvidia-smi", fields, "--format=csv,noheader"], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"gpu": done.stdout.splitlines()[0]}


def sentence(machine: dict[str, Any]) -> str:
    """One line for a document."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    gpu = f"{machine['gpu']}, " if "gpu" in machine else ""
    return (
        f"{gpu}{machine['cores']} cores of {machine['cpu']} ({', '.join(machine['instructions'])}), "
        f"{machine['memory_gb']} GB, {machine['system']}; {versions}; load before: {machine['load_before']}."
    )


def _cpu_info() -> dict[str, str]:
    """The model name of the first processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
