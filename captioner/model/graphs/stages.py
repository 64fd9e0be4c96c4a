"""Records the stages of captioning and their times, for example for traces of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class Stage:
    """A part of the work on a batch. Times are in nanoseconds, on the clock of `time.time_ns`."""

    name: str
    """"encode" or "search"."""
    start_ns: int
    end_ns: int = 0
    steps: int = 0
    """Number of decoder steps."""


_observed: ContextVar[list[Stage] | None] = ContextVar("observed", default=None)


@contextmanager
def observe() -> Iterator[list[Stage]]:
    """The stages of models within this context, in order."""
    stages: list[Stage] = []
    token = _observed.set(stages)
    try:
        yield stages
    finally:
        _observed.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Record a stage, within `observe`."""
    stages = _observed.get()
    if stages is None:
        yield
        return
    stages.append(one := Stage(name, time.time_ns()))
    try:
        yield
    finally:
        one.end_ns = time.time_ns()


def count_step() -> None:
    """Count a decoder step in the current stage."""
    if stages := _observed.get():
        stages[-1].steps += 1
