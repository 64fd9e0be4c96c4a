"""The traces of the current call and image. This module does not need OpenTelemetry;
`captioner_server.observation.spans`, which does, is imported only if traces are enabled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from captioner_server.observation.spans import BatchSpans, CallSpans, ImageSpans, WaitSpans

current_trace: ContextVar[CallSpans | None] = ContextVar("current_trace", default=None)
"""Set for the task that answers a call, and all tasks that it starts."""
current_image: ContextVar[ImageSpans | None] = ContextVar("current_image", default=None)
"""Set for the task that captions an image."""
_NOT_TRACED: AbstractContextManager[None] = nullcontext()


def call_span(name: str) -> AbstractContextManager[None]:
    """A part of the work on the current call: admit, receive or send."""
    trace = current_trace.get()
    return _NOT_TRACED if trace is None else trace.child(name)


def image_span(name: str) -> AbstractContextManager[None]:
    """A part of the work on the current image: decode."""
    image = current_image.get()
    return _NOT_TRACED if image is None else image.child(name)


def begin_image() -> ImageSpans | None:
    """Start the span of an image of the current call, and make it the current image."""
    trace = current_trace.get()
    image = None if trace is None else trace.begin_image()
    current_image.set(image)
    return image


def begin_wait() -> WaitSpans | None:
    """Start the wait of the current image for the model."""
    image = current_image.get()
    return None if image is None else image.begin_wait()


def begin_batch(waits: Sequence[WaitSpans | None], beam_size: int) -> BatchSpans | None:
    """Start a batch of these waiting images; None if none of them is traced. `beam_size` is the largest."""
    traced = [one for one in waits if one]
    if not traced:
        return None
    return traced[0].begin_batch(traced, {"captioner.images": len(waits), "captioner.beam_size": beam_size})
