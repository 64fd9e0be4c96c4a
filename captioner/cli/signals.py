"""Signals that end a command, or that it handles for a while."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

from captioner.errors import CaptionerError

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_APART_S = 1.0
"""Signals that follow another sooner are one with it: Ctrl-C pressed twice, or SIGTERM and SIGHUP when a
session ends. The second would interrupt the removal."""
_AGAIN_S = 0.01
"""After this time, a signal comes again whose exception Python dropped, as it does in `__del__` and in
callbacks of weak references. Every import has some."""


@contextmanager
def handling(
    signals: Iterable[int], handler: Callable[[int, FrameType | None], Any] | signal.Handlers
) -> Iterator[None]:
    """Let these signals call the handler within the block. Only the main thread may set one; in others, as
    when a program calls `main`, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def ignoring_hangups() -> AbstractContextManager[None]:
    """Let SIGHUP do nothing until the block handles it itself."""
    return handling([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [], signal.SIG_IGN)


@contextmanager
def ending_orderly() -> Iterator[None]:
    """Let SIGTERM, and the SIGHUP of a closed terminal, end the block with an exception, as Ctrl-C does. What
    is ignored, as after `nohup`, stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = -_APART_S
    number = signal.SIGINT
    ending: BaseException | None = None
    is_dropped = False

    def end(given: int, frame: FrameType | None) -> None:
        nonlocal last, number, ending, is_dropped
        now = time.monotonic()
        if now - last < _APART_S and not is_dropped:
            return
        last, number, is_dropped = now, signal.Signals(given), False
        ending = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        raise ending

    def report_dropped(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal is_dropped
        if ending is None or unraisable.exc_value is not ending:
            report(unraisable)
            return
        is_dropped = True
        _thread.start_new_thread(come_again, ())  # without locks, which the interrupted code may hold

    def come_again() -> None:
        time.sleep(_AGAIN_S)
        if is_dropped:
            _thread.interrupt_main(number)

    report, sys.unraisablehook = sys.unraisablehook, report_dropped
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    try:
        with handling([each for each in _SIGNALS if signal.getsignal(each) in defaults], end):
            yield
    except (CaptionerError, OSError):  # why it could not end orderly
        raise
    except Exception:
        if ending is None:
            raise
        raise ending from None  # code in C makes errors of its own of it: NumPy's imports an ImportError
    finally:
        sys.unraisablehook = report
    if is_dropped and ending is not None:
        raise ending
