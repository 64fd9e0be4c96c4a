"""The stages of captioning and their times, for example for traces of the server."""

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
    """How often the decoder ran."""


_observed: ContextVar[list[Stage] | None] = ContextVar("observed", default=None)


@contextmanager
def observe() -> Iterator[list[Stage]]:
    """The stages that models go through in this context, in order."""
    stages: list[Stage] = []
    token = _observed.set(stages)
    try:
        yield stages
    finally:
        _observed.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage, if somebody observes."""
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
    """The decoder runs once, in the latest stage."""
    if stages := _observed.get():
        stages[-1].steps += 1
