"""gRPC on a port, which is opened again after gRPC has ended by itself.

It does after a call whose path is not UTF-8: the loop that accepts calls decodes their paths, in Cython, and
fails. Nothing sees a path before that; so what failed finishes its open calls, and another takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType
from typing import Any

import grpc

from captioner.grpc_log import leave_out_headers
from captioner_server.errors import ServerStartError

log = logging.getLogger("captioner_server")

_PAUSE_S = 0.01
"""Pause between attempts to bind the port again, which gRPC closes on another thread."""
_TOLD_S = 60.0
"""Time between log lines: callers can end gRPC as often as they like."""
_UNLINK_S = 2.0
"""Longest wait for the path of a Unix socket to go with what listened there."""

leave_out_headers()


class RpcPort:
    """For use on one event loop."""

    def __init__(self, make: Callable[[], grpc.aio.Server], grace_s: float) -> None:
        """`make` gives a server with its services and without a port. Open calls of one that has failed are
        finished within `grace_s`."""
        self._make, self._grace_s = make, grace_s
        self._server = make()
        self._address = ""
        self._credentials: grpc.ServerCredentials | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed = asyncio.Event()
        self._restarting: asyncio.Task[None] | None = None
        self._ending: dict[asyncio.Task[None], grpc.aio.Server] = {}
        self._stopping = False
        self._tell_from_s = 0.0

    async def start(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listen; returns the port. Raises `ServerStartError`."""
        self._credentials = credentials
        try:
            port = self._bind(address)
        except RuntimeError as error:
            raise ServerStartError(
                f"cannot listen on {address}: the port is taken, or the address or certificate is unusable"
            ) from error
        self._address = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
        asyncio.get_running_loop().set_task_factory(self._task)
        await self._server.start()
        self._restarting = asyncio.create_task(self._restart_always())
        return port

    async def stop(self, grace_s: float) -> None:
        """Close the port; calls still open are cancelled after the grace period."""
        self._stopping = True
        servers = [self._server, *self._ending.values()]
        for task in (self._restarting, *self._ending):
            if task:
                task.cancel()
        await asyncio.gather(*(server.stop(grace_s) for server in servers))

    def _task(self, loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        """A factory of tasks. Those of gRPC are kept: when the loop that accepts calls has failed, nothing
        else refers to them."""
        name = getattr(work, "__qualname__", "")  # what closes an asynchronous generator has none
        if isinstance(work, CoroutineType) or not name:  # not Cython's
            return asyncio.Task(work, loop=loop, **more)
        kind = _Request if "_request" in name else asyncio.Task
        task: asyncio.Task[Any] = kind(work, loop=loop, **more)
        if isinstance(task, _Request):
            task.at_cancel = self._failed.set
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _bind(self, address: str) -> int:
        if self._credentials is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, self._credentials))

    async def _restart_always(self) -> None:
        try:
            while True:
                await self._failed.wait()
                self._failed.clear()
                task = asyncio.create_task(self._end(self._server))
                self._ending[task] = self._server
                task.add_done_callback(self._ending.pop)
                self._server = self._make()
                await self._bind_again()
                await self._server.start()
                if (now_s := time.monotonic()) >= self._tell_from_s:
                    self._tell_from_s = now_s + _TOLD_S
                    log.warning("a call whose path is not UTF-8 has ended gRPC, which was started again")
        finally:
            if not self._stopping:  # the event loop ends, and waits for all tasks
                for task in tuple(self._tasks):
                    asyncio.Task.cancel(task)

    async def _bind_again(self) -> None:
        await asyncio.sleep(_PAUSE_S)
        path = self._address.removeprefix("unix:") if self._address.startswith("unix:") else ""
        with suppress(TimeoutError):
            async with asyncio.timeout(_UNLINK_S):
                while path and os.path.exists(path):  # noqa: PTH110
                    await asyncio.sleep(_PAUSE_S)  # else gRPC would remove the new socket with the old
        while True:
            with suppress(RuntimeError):
                self._bind(self._address)
                return
            await asyncio.sleep(_PAUSE_S)

    async def _end(self, server: grpc.aio.Server) -> None:
        with suppress(UnicodeDecodeError):
            await server.stop(self._grace_s)
        await server.stop(self._grace_s)


class _Request(asyncio.Task[Any]):
    """Waits for a call. gRPC cancels it when the loop that accepts calls has failed; but its core still has
    the address of what the task holds, and would write there. It ends when the server stops."""

    at_cancel: Callable[[], None]

    def cancel(self, msg: Any = None) -> bool:
        self.at_cancel()
        return False
