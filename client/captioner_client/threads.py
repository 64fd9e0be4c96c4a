"""Work on threads, beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from captioner.errors import needing_threads

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """The result of `work`. Raises `CaptionerError` once the main thread has ended, as `needing_threads`."""
    with needing_threads():
        if not threading.main_thread().is_alive():
            # Since Python 3.12, asyncio.run hides the error if its loop has an executor by then.
            with ThreadPoolExecutor(1) as executor:
                executor.submit(int)
        return await asyncio.to_thread(work, *arguments)
