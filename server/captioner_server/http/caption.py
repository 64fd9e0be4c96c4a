"""The calls that caption, and the one that describes the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captioner.readable_json import dump_json
from captioner.results import Caption, Word
from captioner_server.captioning.buffered import buffered
from captioner_server.captioning.models import Models
from captioner_server.captioning.pictures import Pictures
from captioner_server.http.off_loop import off_loop
from captioner_server.http.request.body import MODEL, CaptionCall, query_field, read_image, read_request
from captioner_server.http.stream import EventStream, encode_event
from captioner_server.intake.ticket import Ticket
from captioner_server.options import ServerOptions


class CaptionCalls:
    """Answers with the results of the models. Errors are raised."""

    def __init__(self, models: Models, pictures: Pictures, options: ServerOptions) -> None:
        self._models, self._pictures, self._options = models, pictures, options

    async def read(self, request: Request) -> CaptionCall:
        """Parse a request for a caption."""
        return await self._read(request, read_request)

    async def read_image(self, request: Request) -> CaptionCall:
        """Parse a request for the image itself."""
        return await self._read(request, read_image)

    async def _read(self, request: Request, read: Callable[..., Awaitable[CaptionCall]]) -> CaptionCall:
        limits = self._options
        call = await read(request, limits.max_image_bytes, limits.max_message_bytes)
        return dataclasses.replace(call, options=self._models.get(call.model).search.resolve(call.options))

    async def caption(self, call: CaptionCall, ticket: Ticket) -> Response:
        """The caption of one image as JSON."""
        hosted = self._models.get(call.model)
        with hosted.enter(ticket, call.options):
            caption = await hosted.caption(ticket, call.image, call.options)
        return Response(await encode(caption.in_style(call.style)), media_type="application/json")

    async def stream(self, call: CaptionCall, ticket: Ticket) -> Response:
        """Every word as it is decoded, then the caption, as server-sent events."""

        async def events() -> Any:
            hosted = self._models.get(call.model)
            with ExitStack() as place:
                place.enter_context(hosted.enter(ticket, call.options))
                work = hosted.stream(ticket, call.image, call.options)
                async with aclosing(buffered(work, place.close)) as items:
                    async for item in items:
                        if isinstance(item, Caption):
                            yield encode_event("caption", await encode(item.in_style(call.style)))
                        else:
                            yield encode_event("word", await encode(item))

        return await EventStream.begin(events())

    async def picture(self, call: CaptionCall, ticket: Ticket) -> Response:
        """The image as a JPEG, for browsers that do not show its format."""
        self._models.get(call.model)  # pictures need none, but an unknown name is a mistake
        return Response(await self._pictures.make(ticket, call.image), media_type="image/jpeg")

    async def read_name(self, request: Request) -> str:
        """The model in the query of a request without a body; "" for the default."""
        return query_field(request, MODEL) or ""

    async def model(self, name: str, ticket: Ticket) -> Response:
        """The model and the limits of the server."""
        return JSONResponse(self._models.describe(name).to_dict())


async def encode(item: Caption | Word) -> bytes:
    """A caption or a word as JSON, encoded off the event loop if it has maps, which can be large."""
    words = item.words if isinstance(item, Caption) else (item,)
    has_maps = any(word.attention is not None for word in words)
    return await off_loop(_encode, item) if has_maps else _encode(item)


def _dump(record: dict[str, Any]) -> bytes:
    return dump_json(record, allow_nan=False, separators=(",", ":")).encode()


def _encode(item: Caption | Word) -> bytes:
    if isinstance(item, Word):
        return _encode_word(item)
    head = _dump(dataclasses.replace(item, words=()).to_dict())
    words = b"[%s]" % b",".join(map(_encode_word, item.words))
    return head.replace(b'"words":[]', b'"words":' + words, 1)


def _encode_word(word: Word) -> bytes:
    if word.attention is None:
        return _dump(word.to_dict())
    rest = _dump(dataclasses.replace(word, attention=None).to_dict())
    return b'%s,"attention":%s}' % (rest[:-1], _encode_map(word.attention))


def _encode_map(attention: npt.NDArray[np.float32]) -> bytes:
    """The numbers of `Word.to_dict` in a third of the time, which holds Python's lock and is long for large
    maps."""
    if not np.isfinite(attention).all():
        raise ValueError("a map has values that JSON does not have")
    row = f"[{','.join(['%.7g'] * attention.shape[1])}]"
    return f"[{','.join(row % tuple(values) for values in attention.tolist())}]".encode()
