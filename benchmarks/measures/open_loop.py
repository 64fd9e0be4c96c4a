"""Open-loop arrivals over HTTP: photos are sent at random times, whether or not others have been answered.

    python -m measures.open_loop    reads its settings as JSON from stdin, prints what it found as JSON

A process of its own, so that a slow server does not slow down the arrivals (coordinated omission). aiohttp
takes about 1 ms of a core for a call; httpx takes 4, and more when calls pile up.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

_TIMEOUT_S = 10.0


async def send(given: dict[str, Any]) -> dict[str, Any]:
    """Answer times count from the moment that a photo was due; a failure counts as the longest wait."""
    random = np.random.default_rng(0)
    count = max(1, round(given["rate"] * given["seconds"]))
    due_s = np.cumsum(random.exponential(1 / given["rate"], count)).tolist()
    files = [Path(path).read_bytes() for path in given["photos"]]
    waits: list[float] = []
    failures: list[str] = []

    async def one(client: aiohttp.ClientSession, number: int, due: float) -> None:
        photo = files[number % len(files)]
        try:
            async with client.post(
                given["url"], data={"image": photo} if given["multipart"] else photo
            ) as answer:
                body = await answer.text()
                good = answer.status == 200
                if not good:
                    failures.append(f"HTTP {answer.status}: {body[:200]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            good = False
            failures.append(str(error) or type(error).__name__)
        waits.append(time.perf_counter() - due if good else _TIMEOUT_S)

    connections = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connections, timeout=timeout) as client:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for number, due in enumerate(due_s):
                await asyncio.sleep(max(0.0, started + due - time.perf_counter()))
                tasks.create_task(one(client, number, started + due))
        elapsed_s = time.perf_counter() - started
    p50, p99 = (1000 * np.percentile(waits, [50, 99])).tolist()
    return {
        "answered/s": (count - len(failures)) / elapsed_s,
        "p50 ms": p50,
        "p99 ms": p99,
        "failed": len(failures),
        "first failure": failures[0] if failures else "",
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(send(json.load(sys.stdin)))))
