"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""Files with a quota and its period, of both versions of Linux's control groups."""


def available_cores() -> int:
    """Cores that this process may use."""
    return core_limit() or _machine_cores()


def core_limit() -> int | None:
    """Cores that the container's limit pays for, if they are fewer than those of the machine; else None. More
    threads than that would be stopped for a part of each period."""
    for files in _QUOTAS:
        try:
            quota, period = map(float, " ".join((_GROUP / file).read_text() for file in files).split())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        cores = math.ceil(quota / period)
        return cores if 0 < cores < _machine_cores() else None
    return None


def _machine_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
