"""Waiting for events, for as long as a machine that is busy with other things may take."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
"""Only a test that fails waits for so long."""


def wait_until(true: Callable[[], T], what: str = "it", patience_s: float = PATIENCE_S) -> T:
    """The first true value of what is asked again and again; fails when there is none for `patience_s`."""
    limit = time.monotonic() + patience_s
    while not (value := true()):
        assert time.monotonic() < limit, f"not within {patience_s:g} s: {what}"
        time.sleep(0.005)
    return value


def free_port() -> int:
    """A port for a process that cannot take port 0, below those that the system gives to connections."""
    for port in random.SystemRandom().sample(range(10_000, 32_000), 1000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")
