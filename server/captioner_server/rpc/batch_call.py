"""One CaptionBatch call: images with ids in, answers out in the order of completion."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

import grpc

from captioner.errors import CaptionerError
from captioner.protobuf import caption_to_proto, options_from_proto
from captioner.v1 import captioner_pb2 as pb
from captioner_server.captioning.hosted_model import HostedModel
from captioner_server.captioning.models import Models
from captioner_server.errors import INTERNAL, DeadlineError, RequestError, release_frames
from captioner_server.intake.door import Door
from captioner_server.intake.messages import evicted
from captioner_server.intake.ticket import Ticket
from captioner_server.observation.call import current_call
from captioner_server.observation.tracing import call_span
from captioner_server.options import ServerOptions
from captioner_server.rpc.errors import to_batch_error
from captioner_server.rpc.wire import Received, begin_stream, read, write

log = logging.getLogger(__name__)

_MAX_ID_BYTES = 1024


class BatchCall:
    """Reads only while fewer than `stream_window` images are unanswered; an answer counts until the caller
    has taken it. Flow control thus slows down callers that send too fast or read too slowly."""

    def __init__(
        self,
        models: Models,
        options: ServerOptions,
        door: Door,
        ticket: Ticket,
        context: grpc.aio.ServicerContext,
    ) -> None:
        self._models, self._options, self._door = models, options, door
        self._ticket, self._context = ticket, context
        self._window = asyncio.Semaphore(options.stream_window)
        # Each with its room, which it has until it is sent.
        self._answers: asyncio.Queue[tuple[pb.CaptionBatchResponse, AsyncExitStack] | None] = asyncio.Queue()
        self._unanswered = 0

    async def run(self) -> None:
        """Answer until the caller has sent all images, or the server drains. Every image that was read is
        answered before the call ends; it ends with `NotServingError` if the server drains."""
        await begin_stream(self._context)
        reader = asyncio.create_task(self._read())
        try:
            while (item := await self._answers.get()) is not None:
                answer, room = item
                async with room:
                    await write(self._context, answer, self._options.stream_idle_s, self._door.crowded)
                self._unanswered -= 1
                self._window.release()
            await reader
        finally:
            reader.cancel()
            try:
                await asyncio.gather(reader, return_exceptions=True)  # frees what it holds
            finally:  # gRPC may cancel a call twice
                while not self._answers.empty():
                    if item := self._answers.get_nowait():
                        await item[1].aclose()

    async def _read(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                ending = await self._start_all(tasks)
            if ending:
                raise ending
        finally:
            self._answers.put_nowait(None)

    async def _start_all(self, tasks: asyncio.TaskGroup) -> CaptionerError | None:
        """Start work on each image; returns the error that ends the call, if any."""
        draining = tasks.create_task(self._door.state.draining())
        try:
            while True:
                await self._window.acquire()
                async with AsyncExitStack() as room, AsyncExitStack() as admitted:
                    ticket = self._ticket.for_image()
                    await room.enter_async_context(self._door.budget.hold(ticket))
                    try:
                        with call_span("receive"):
                            received = await self._next(ticket, draining)
                        self._door.check(ticket)
                    except CaptionerError as error:
                        return error
                    if received is None:
                        return None
                    self._door.budget.settle(ticket, received.size)
                    if received.error:
                        return received.error
                    self._unanswered += 1
                    # Only one image is read before admission, which bounds the memory of all streams.
                    hosted = self._find(received.message.model)
                    with call_span("admit"):
                        await admitted.enter_async_context(hosted.wait(ticket))
                    captioned = self._caption(ticket, received.message, hosted)
                    tasks.create_task(self._answer(captioned, ticket, room.pop_all(), admitted.pop_all()))
        finally:
            draining.cancel()

    async def _next(self, ticket: Ticket, draining: asyncio.Task[None]) -> Received | None:
        """The next message, None after the last. Raises the error if the server ends the call."""
        assert ticket.evicted is not None
        reading = asyncio.ensure_future(read(self._context))
        events: set[asyncio.Future[Any]] = {reading, draining, ticket.evicted}
        try:
            while not reading.done():
                await asyncio.wait(
                    events,
                    timeout=self._options.stream_idle_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if reading.done():
                    break
                if draining.done() and (rejection := self._door.state.rejection()):
                    raise rejection
                if ticket.evicted.done():
                    raise evicted()
                if not self._unanswered:
                    idle_s = self._options.stream_idle_s
                    raise DeadlineError(f"no image for {idle_s:g} s (stream_idle_s)")
            return reading.result()
        finally:
            reading.cancel()

    def _find(self, name: str) -> HostedModel:
        """The model of an image; the default if the name is unknown, which `_caption` then reports."""
        return self._models.get(name if name in self._models.names else "")

    async def _answer(
        self,
        captioned: Awaitable[pb.CaptionBatchResponse],
        ticket: Ticket,
        room: AsyncExitStack,
        admitted: AsyncExitStack,
    ) -> None:
        """Answer one image. It stays `admitted` until it is captioned; then the answer takes its `room`."""
        async with room:
            async with admitted:
                answer = await captioned
            self._door.budget.settle(ticket, answer.ByteSize())
            self._answers.put_nowait((answer, room.pop_all()))

    async def _caption(
        self, ticket: Ticket, request: pb.CaptionBatchRequest, hosted: HostedModel
    ) -> pb.CaptionBatchResponse:
        answer = pb.CaptionBatchResponse(id=request.id)
        try:
            if len(request.id.encode()) > _MAX_ID_BYTES:
                raise RequestError(f"an id has at most {_MAX_ID_BYTES} bytes", "id")
            self._models.get(request.model)  # raises for a name that is not served
            options = hosted.search.resolve(options_from_proto(request.options))
            caption = await hosted.caption(ticket, request.image, options)
            answer.caption.CopyFrom(caption_to_proto(caption))
        except CaptionerError as error:
            release_frames(error)
            answer.error.CopyFrom(to_batch_error(error))
        except Exception as error:
            log.exception("a defect, in %s", current_call.get().request_id)
            release_frames(error)
            answer.error.CopyFrom(to_batch_error(CaptionerError(INTERNAL)))
        return answer
