"""How much memory this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from captioner.control_groups import folders

_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""Files of both versions of control groups."""


def available_memory() -> int | None:
    """Bytes: the memory of the machine, or the limit of a container, a service or `ulimit -v` if that is
    lower. None where the system does not say."""
    return min(_found(), default=None)


def _found() -> Iterator[int]:
    for folder in folders("memory"):
        for name in _LIMITS:
            with suppress(OSError, ValueError):  # no such file, or "max"
                yield int((folder / name).read_text())
    with suppress(OSError, ValueError, AttributeError):
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError, IndexError):  # that of a virtual machine in some containers
        yield 1024 * int(Path("/proc/meminfo").read_text().split()[1])
    with suppress(ImportError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            yield soft
