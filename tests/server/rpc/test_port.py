"""The port of gRPC shares its event loop with others."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import grpc

from captioner_server.rpc.port import RpcPort


def test_generators_on_its_event_loop_are_closed() -> None:
    """What closes one that was left is no coroutine, and has no name."""
    closed = asyncio.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            closed.set()

    async def leave_one() -> None:
        port = RpcPort(grpc.aio.server, grace_s=0)
        await port.start("127.0.0.1:0", None)
        async for _ in numbers():
            break
        gc.collect()
        await asyncio.wait_for(closed.wait(), 60)
        await port.stop(0)

    asyncio.run(leave_one())
