"""Streams that are left early: they end at once, and leave nothing to the garbage collector."""

import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from support.models import FakeModel
from support.patience import PATIENCE_S
from support.serving import RunningServer, make_image, serve

from captioner.options import CaptionOptions
from captioner_server.captioning.hosted_model import HostedModel
from captioner_server.captioning.pictures import Pictures
from captioner_server.http.caption import CaptionCalls
from captioner_server.http.request.body import CaptionCall
from captioner_server.intake.ticket import Ticket
from captioner_server.observation.call import Call, current_call

IMAGE = make_image(1)


async def leave(items: AsyncGenerator[Any]) -> None:
    await anext(items)
    await items.aclose()


def left_behind(server: RunningServer, use: Callable[[HostedModel, float], Awaitable[None]]) -> list[str]:
    """The names of the asynchronous generators that `use` leaves unfinished, on the loop of the server."""

    async def run() -> list[str]:
        found: list[str] = []
        current_call.set(Call("test", "1"))
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=lambda generator: found.append(generator.__qualname__))
        try:
            await use(server.server.models.get(), time.monotonic() + PATIENCE_S)
        finally:
            sys.set_asyncgen_hooks(*hooks)
        return found

    return server.call(run())


@pytest.mark.parametrize("options", [CaptionOptions(beam_size=1), CaptionOptions(beam_size=3)])
def test_a_stream_ends_with_all_its_parts(options: CaptionOptions) -> None:
    async def stream(hosted: HostedModel, deadline_s: float) -> None:
        ticket = Ticket(deadline_s=deadline_s)
        await leave(hosted.stream(ticket, IMAGE, hosted.search.resolve(options)))

    with serve(FakeModel()) as server:
        assert left_behind(server, stream) == []


def test_events_that_cannot_be_sent_end_the_stream() -> None:
    async def refuse(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("the connection is gone")

    async def send(hosted: HostedModel, deadline_s: float) -> None:
        calls = CaptionCalls(server.server.models, Pictures(server.server.options), server.server.options)
        call = CaptionCall(IMAGE, hosted.search.resolve(CaptionOptions()))
        response: Any = await calls.stream(call, Ticket(deadline_s=deadline_s))
        with suppress(OSError):
            await response({}, None, refuse)

    with serve(FakeModel()) as server:
        assert left_behind(server, send) == []
        assert not server.metric("admitted_images")
