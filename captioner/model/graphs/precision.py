"""Which arithmetic a model computes in: float32, or INT8 where the processor gains from it."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path

from captioner.errors import OptionsError

FLOAT32, INT8 = "float32", "int8"
PRECISIONS = ("auto", FLOAT32, INT8)
_CPU_INFO = Path("/proc/cpuinfo")
_DOT_PRODUCTS = frozenset(("avx512_vnni", "avx_vnni", "amx_int8", "asimddp"))
"""Flags of processors, as Linux names them, that multiply 8-bit numbers and add them up in one instruction.
Without it, INT8 gains little, and older x86 processors saturate sums on the way."""


def check_precision(precision: str) -> None:
    """Raises `OptionsError` for a name that is none of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise OptionsError(
            f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}", "precision"
        )


@cache
def has_fast_int8() -> bool:
    """Whether this processor gains from INT8."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    return not _DOT_PRODUCTS.isdisjoint(_flags())


@cache
def processor() -> str:
    """A key for optimised graphs: the kind of processor and its instructions."""
    kind = os.environ.get("PROCESSOR_IDENTIFIER", "")  # of Windows
    return f"{sys.platform} {platform.machine()} {kind} {' '.join(_flags())}"


def _flags() -> list[str]:
    """Instructions of the first processor; none where the system does not tell them."""
    try:
        with _CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(("flags", "Features")):
                    return line.partition(":")[2].split()
    except OSError:
        pass
    return []
