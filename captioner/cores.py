"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from captioner.control_groups import folders
from captioner.errors import OptionsError
from captioner.options import plain_number

_LEAST_LIMIT = 64
"""The limit of threads and processes is at least this, and else four for each core: thousands would stall the
machine."""
_QUOTAS = (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
"""Files with a quota and its period, of both versions of control groups."""


def available_cores() -> int:
    """Cores that this process may use."""
    return core_limit() or machine_cores()


def core_limit() -> int | None:
    """Cores that the limits of a container or a service pay for, if they are fewer than those of the machine;
    else None. More threads than that would be stopped for a part of each period."""
    cores = min((limit for folder in folders("cpu") for limit in _limits(folder)), default=0)
    return cores if 0 < cores < machine_cores() else None


def check_parallel(option: str, number: int | None) -> int | None:
    """The number of threads or processes that an `option` gives, or None. Raises `OptionsError` for one out
    of range."""
    most = max(_LEAST_LIMIT, 4 * available_cores())
    number = plain_number(number)
    if number is not None and not (isinstance(number, int) and 1 <= number <= most):
        raise OptionsError(f"{option} must be from 1 to {most}, got {number!r}", option)
    return number


def machine_cores() -> int:
    """Cores of the machine that this process may run on, whatever its share of their time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _limits(folder: Path) -> Iterator[int]:
    for files in _QUOTAS:
        try:
            quota, period = map(float, " ".join((folder / file).read_text() for file in files).split())
        except (OSError, ValueError):  # no such file, or "max"
            continue
        if quota > 0 and period > 0:  # a quota of -1 is none
            yield math.ceil(quota / period)
