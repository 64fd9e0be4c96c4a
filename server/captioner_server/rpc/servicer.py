"""captioner.v1.CaptionService."""

from __future__ import annotations

from contextlib import ExitStack, aclosing

import grpc

from captioner.protobuf import (
    caption_to_proto,
    model_to_proto,
    options_from_proto,
    word_to_proto,
)
from captioner.results import Caption
from captioner.v1 import captioner_pb2 as pb
from captioner.v1 import captioner_pb2_grpc
from captioner_server.captioning.buffered import buffered
from captioner_server.captioning.models import Models
from captioner_server.intake.door import Door
from captioner_server.intake.ticket import Ticket, current_ticket
from captioner_server.options import ServerOptions
from captioner_server.rpc.batch_call import BatchCall
from captioner_server.rpc.wire import begin_stream, write


class CaptionServicer(captioner_pb2_grpc.CaptionServiceServicer):
    """Answers with the results of the models. The interceptor turns raised errors into statuses."""

    def __init__(self, models: Models, options: ServerOptions, door: Door) -> None:
        self._models = models
        self._options = options
        self._door = door

    async def Caption(
        self, request: pb.CaptionRequest, context: grpc.aio.ServicerContext
    ) -> pb.CaptionResponse:
        hosted = self._models.get(request.model)
        options = hosted.search.resolve(options_from_proto(request.options))
        ticket = current_ticket.get()
        with hosted.enter(ticket, options):
            caption = await hosted.caption(ticket, request.image, options)
        return pb.CaptionResponse(caption=caption_to_proto(caption))

    async def StreamCaption(
        self, request: pb.StreamCaptionRequest, context: grpc.aio.ServicerContext
    ) -> None:
        hosted = self._models.get(request.model)
        options = hosted.search.resolve(options_from_proto(request.options).for_streaming())
        ticket = current_ticket.get()
        with ExitStack() as place:
            place.enter_context(hosted.enter(ticket, options))
            await begin_stream(context)
            work = hosted.stream(ticket, request.image, options)
            async with aclosing(buffered(work, place.close)) as items:
                async for item in items:
                    if isinstance(item, Caption):
                        event = pb.StreamCaptionResponse(caption=caption_to_proto(item))
                    else:
                        event = pb.StreamCaptionResponse(word=word_to_proto(item))
                    await write(context, event, self._options.stream_idle_s, self._door.crowded)

    async def CaptionBatch(self, ticket: Ticket, context: grpc.aio.ServicerContext) -> None:
        """The interceptor passes the ticket of the call instead of an iterator over its messages."""
        await BatchCall(self._models, self._options, self._door, ticket, context).run()

    async def GetModel(
        self, request: pb.GetModelRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetModelResponse:
        return model_to_proto(self._models.describe(request.model))
