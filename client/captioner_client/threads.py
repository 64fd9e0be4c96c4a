"""Work on threads, beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from captioner.errors import needing_threads

T = TypeVar("T")


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """The result of `work`. Raises `CaptionerError` once the main thread has ended, as `needing_threads`."""
    with needing_threads():
        return await asyncio.to_thread(work, *arguments)
