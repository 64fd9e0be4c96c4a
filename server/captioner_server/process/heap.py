"""The memory of the process: glibc's heaps, and Python's garbage collector.

Freed memory is kept for the next message. If the process has grown, a thread returns free memory to the
system within seconds.

By default, glibc returns the memory of each large message at once. The page faults for the next message then
take as long as copying it. glibc also gives each thread its own heap, and returns only free memory at the end
of a heap. The memory of a burst of messages or headers would stay resident, once in the heap of each gRPC
thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_HEAPS = 4
_LARGEST_BYTES = 32 * 2**20
"""Larger blocks, which glibc does not keep in a heap, are returned at once."""
_KEPT_BYTES = 256 * 2**20
"""Free memory at the end of a heap until the next trim."""
_INTERVAL_S = 2.0
_GROWTH_BYTES = 16 * 2**20
"""Growth since the last trim that is worth another, which takes milliseconds."""
_LONGEST_PAUSE = 16
"""Most intervals between two trims of a process that does not grow."""
_YOUNG_OBJECTS = 10_000
"""New objects between two collections of garbage; Python's default is 700. A call makes hundreds, which few
cycles hold."""


def bound_heap() -> None:
    """Limit the number of heaps, keep freed memory in them, and trim them in the background whenever the
    process has grown. Call this before threads are started. Does nothing without glibc."""
    library: Any = ctypes.CDLL(None)
    try:
        library.mallopt(_M_ARENA_MAX, _HEAPS)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        trim = library.malloc_trim
    except AttributeError:
        return
    threading.Thread(target=_keep_trimmed, args=(trim,), name="heap", daemon=True).start()


def settle_garbage() -> None:
    """Free what only cycles hold, then exempt all that is left, mostly modules and models, from further
    collections, each of which would look through it again. Call this when models have been loaded or closed.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


def _keep_trimmed(trim: Any) -> None:
    """Trim when the process has grown, and from time to time while it is larger than it once was: what was
    in use at the last trim may be free by now."""
    least = last = _resident_bytes()
    rest = pause = 1  # in intervals
    while True:
        time.sleep(_INTERVAL_S)
        rest -= 1
        try:
            resident = _resident_bytes()
        except OSError:  # no file can be opened now
            continue
        least, last = min(least, resident), min(last, resident)
        if resident > last + _GROWTH_BYTES or (rest <= 0 and resident > least + _GROWTH_BYTES):
            trim(0)  # without the global lock
            with suppress(OSError):
                last = _resident_bytes()
            pause = 1 if last < resident - _GROWTH_BYTES else min(2 * pause, _LONGEST_PAUSE)
            rest = pause


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
