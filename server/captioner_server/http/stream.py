"""Server-sent events: an answer in parts, each sent as soon as it is ready."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from captioner.errors import CaptionerError
from captioner.readable_json import dump_json
from captioner_server.errors import INTERNAL
from captioner_server.http.errors import error_to_json


def encode_event(kind: str, data: bytes) -> bytes:
    """An event whose data are one line of JSON."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


class EventStream(Response):
    """Sends events as they are produced. An error after the first one is sent as an event "error"."""

    media_type = "text/event-stream"

    def __init__(self, first: bytes, events: AsyncGenerator[bytes]) -> None:
        self.status_code = 200
        self.background = None
        self._first, self._events = first, events
        self.init_headers({"X-Accel-Buffering": "no"})  # proxies must not buffer events

    @classmethod
    async def begin(cls, events: AsyncGenerator[bytes]) -> EventStream:
        """Wait for the first event, so that errors before it have their own status."""
        try:
            return cls(await anext(events), events)
        except BaseException:
            await events.aclose()
            raise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            try:
                async for event in self._events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
            except Exception as error:
                shown = error if isinstance(error, CaptionerError) else CaptionerError(INTERNAL)
                last = encode_event("error", dump_json(error_to_json(shown)).encode())
                await send({"type": "http.response.body", "body": last, "more_body": False})
                raise
            await send({"type": "http.response.body", "body": b"", "more_body": False})
