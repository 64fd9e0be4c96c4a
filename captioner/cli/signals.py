"""Signals that end a command: its temporary folders are removed first."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_APART_S = 1.0
"""Signals that follow another sooner are one with it: Ctrl-C pressed twice, or SIGTERM and SIGHUP when a
session ends. The second would interrupt the removal."""


@contextmanager
def ignoring_hangups() -> Iterator[None]:
    """Let SIGHUP do nothing until the block handles it itself."""
    if not hasattr(signal, "SIGHUP") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@contextmanager
def ending_orderly() -> Iterator[None]:
    """Let SIGTERM, and the SIGHUP of a closed terminal, end the block with an exception, as Ctrl-C does. What
    is ignored, as after `nohup`, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_APART_S

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _APART_S:
            return
        last = now
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    defaults = (signal.SIG_DFL, signal.default_int_handler)
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    before = {number: handler for number, handler in before.items() if handler in defaults}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
