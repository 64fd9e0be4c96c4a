"""Long work in Python, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="off-loop")
"""One thread: work holds Python's global lock, and the event loop would wait for several threads in turn."""


async def off_loop(work: Callable[..., T], *arguments: object) -> T:
    """The result of `work`, after that of earlier calls."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work, *arguments)
