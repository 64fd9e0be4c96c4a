"""Open-loop arrivals: photos are sent at random times, whether or not others have been answered.

    python -m measures.open_loop    reads its settings as JSON from stdin, prints what it found as JSON

A process of its own, so that a slow server does not slow down the arrivals (coordinated omission). Over
HTTP, to the "url" in the settings, aiohttp takes about 1 ms of a core for a call (httpx takes 4, and more
when calls pile up); over gRPC, to the "address", the generated stub sends the photos.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

_TIMEOUT_S = 10.0
Call = Callable[[bytes], Awaitable[str]]
"""Sends a photo; returns what went wrong, or nothing."""


async def send(given: dict[str, Any]) -> dict[str, Any]:
    """Answer times count from the moment that a photo was due; a failure counts as the longest wait."""
    random = np.random.default_rng(given.get("seed", 0))
    count = max(1, round(given["rate"] * given["seconds"]))
    due_s = np.cumsum(random.exponential(1 / given["rate"], count)).tolist()
    files = [Path(path).read_bytes() for path in given["photos"]]
    waits: list[float] = []
    failures: list[str] = []

    async def one(call: Call, number: int, due: float) -> None:
        if failure := await call(files[number % len(files)]):
            failures.append(failure)
        waits.append(_TIMEOUT_S if failure else time.perf_counter() - due)

    async with _over_grpc(given) if "address" in given else _over_http(given) as call:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number, due in enumerate(due_s):
                await asyncio.sleep(max(0.0, started + due - time.perf_counter()))
                tasks.create_task(one(call, number, started + due))
        elapsed_s = time.perf_counter() - started
    p50, p99 = (1000 * np.percentile(waits, [50, 99])).tolist()
    return {
        "answered/s": (count - len(failures)) / elapsed_s,
        "p50 ms": p50,
        "p99 ms": p99,
        "failed": len(failures),
        "first failure": failures[0] if failures else "",
    }


@asynccontextmanager
async def _over_http(given: dict[str, Any]) -> AsyncIterator[Call]:
    import aiohttp

    async def call(photo: bytes) -> str:
        try:
            async with client.post(
                given["url"], data={"image": photo} if given["multipart"] else photo
            ) as answer:
                body = await answer.text()
                return "" if answer.status == 200 else f"HTTP {answer.status}: {body[:200]}"
        except (aiohttp.ClientError, TimeoutError) as error:
            return str(error) or type(error).__name__

    connections = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connections, timeout=timeout) as client:
        yield call


@asynccontextmanager
async def _over_grpc(given: dict[str, Any]) -> AsyncIterator[Call]:
    import grpc

    from captioner.v1.captioner_pb2 import CaptionRequest
    from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

    async def call(photo: bytes) -> str:
        try:
            await stub.Caption(CaptionRequest(image=photo), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"[:200]
        return ""

    async with grpc.aio.insecure_channel(given["address"]) as channel:
        stub = CaptionServiceStub(channel)
        await channel.channel_ready()
        yield call


if __name__ == "__main__":
    print(json.dumps(asyncio.run(send(json.load(sys.stdin)))))
