"""HTTP/1.1 on a connection: that of uvicorn, with bounds on what a caller may send and leave unread.

uvicorn has no public interface for this. `tests/server/http/test_private_parts.py` names what is used of it,
and pyproject.toml the versions that have it.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import constants, sslproto
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.readable_json import dump_json
from captioner_server.errors import RequestError
from captioner_server.http.errors import error_to_json

HEAD_S = 10.0
"""Longest time for the head of a request to arrive."""
MAX_HEAD_BYTES = 2**15
_PIECE_BYTES, _LARGE_PIECE_BYTES = 2**9, 2**12
"""Bytes to parse at once: small pieces of heads and of small chunks, each of which takes as long as a large
chunk."""
_READ_BYTES = 2**15
_BODY_BYTES = 24 * 2**10
"""Most bytes of a waiting call's body before reading is paused. With one more read of `_READ_BYTES`, a call
that is not read yet takes at most 64 KiB."""
_MOST_OVERHEAD_BYTES = 2**8
"""Most bytes of the heads of chunks, beside as many as the body has; in chunks of one byte there are five
times as many."""
_FEED_S = 0.002
_MOST_REST_S = 0.05
_LINGER_S = 1.0
"""How long a rejected request is read on, and discarded, before its connection is closed."""


def bounded_protocol(unread_s: float) -> Any:
    """What makes the protocol of each connection of a server. A caller may read nothing of an answer for
    `unread_s`."""
    _bound_handshakes()
    return partial(_Protocol, feeder=_Feeder(), unread_s=unread_s)


def _bound_handshakes() -> None:
    """Limit the buffer and the duration of TLS handshakes, for all of asyncio in this process: uvicorn has no
    options for them. By default, a connection that only begins its handshake holds 256 KiB for a minute."""
    sslproto.SSLProtocol.max_size = _READ_BYTES
    constants.SSL_HANDSHAKE_TIMEOUT = HEAD_S


class _Feeder:
    """Feeds received bytes to the parsers in small pieces, for a limited time in each iteration of the event
    loop: a body in chunks of one byte is a thousand times as expensive as others of its size.

    Connections take turns by the time that their pieces have taken. While more arrives than can be parsed,
    the loop has as much time for everything else as the last pieces and their answers have taken."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, _Protocol]] = []  # a heap, by time and order of arrival
        self._arrivals = count()
        self._now = 0.0
        """The time of the connection whose turn it was last, in seconds; others start with it."""
        self._scheduled = False

    def add(self, protocol: _Protocol) -> None:
        if not protocol.waits:
            protocol.parsed_s = max(protocol.parsed_s, self._now)
            self._push(protocol)
        if not self._scheduled:
            self._scheduled = True
            protocol.loop.call_soon(self._feed, protocol.loop)

    def _push(self, protocol: _Protocol) -> None:
        protocol.waits = True
        heappush(self._waiting, (protocol.parsed_s, next(self._arrivals), protocol))

    def _feed(self, loop: asyncio.AbstractEventLoop) -> None:
        began = before = time.monotonic()
        try:
            while self._waiting and before < began + _FEED_S:
                self._now, _, protocol = heappop(self._waiting)
                protocol.waits = False
                more = protocol.feed()
                after = time.monotonic()
                protocol.parsed_s += after - before
                before = after
                if more and not protocol.waits:
                    self._push(protocol)
        finally:  # the others go on where a connection fails
            self._scheduled = bool(self._waiting)
            if self._scheduled:
                loop.call_soon(self._rest, loop, began)  # behind what answers these pieces

    def _rest(self, loop: asyncio.AbstractEventLoop, began: float) -> None:
        loop.call_later(min(time.monotonic() - began, _MOST_REST_S), self._feed, loop)


class _Flow(FlowControl):
    """Resumes parsing when the application accepts more."""

    def __init__(self, transport: asyncio.Transport, protocol: _Protocol) -> None:
        super().__init__(transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        super().resume_reading()
        self._protocol.data_received(b"")


class _Lingering:
    """A transport that reads on for a while when it is closed before the request has arrived: the kernel
    drops an answer, such as that the server is busy, if bytes of the caller remain unread."""

    def __init__(self, transport: asyncio.Transport, protocol: _Protocol) -> None:
        self._transport, self._protocol = transport, protocol
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing() or not self._protocol.is_arriving():
            self._transport.close()
            return
        self._lingers = True
        if self._transport.can_write_eof():
            with suppress(OSError):  # the caller has reset the connection
                self._transport.write_eof()
        self._protocol.discard()
        self._transport.resume_reading()
        self._protocol.loop.call_later(_LINGER_S, self._transport.close)


class _Protocol(H11Protocol):
    """Reads in small pieces, and closes idle connections, also those with an incomplete head, an unwanted
    body, or an answer that is not read."""

    def __init__(self, *args: Any, feeder: _Feeder, unread_s: float, **more: Any) -> None:
        """`unread_s` is how long the caller may read nothing of an answer."""
        super().__init__(*args, **more)
        self._feeder, self._unread_s = feeder, unread_s
        self.waits, self.parsed_s = False, 0.0
        """Whether it has its place among those that wait to be fed, and how long its pieces have taken."""
        self._arrived = bytearray()
        self._piece_bytes, self._overhead = _PIECE_BYTES, 0
        """Bytes of the heads of chunks, beside as many as the body has."""

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._arrived += data
        if len(self._arrived) > _LARGE_PIECE_BYTES:
            self.transport.pause_reading()
        if self._arrives_whole():
            self.feed()  # which takes no longer than a turn
        elif self._arrived:
            self._feeder.add(self)

    def feed(self) -> bool:
        """Parse a piece; returns whether there is more to parse now."""
        if self.transport.is_closing():
            self._arrived.clear()
        if self._arrived and not self.flow.read_paused:
            self._parse(self._piece_bytes)
            if self._arrives_whole():
                self._parse(_READ_BYTES)
        if not self._arrived and not self.flow.read_paused:
            self.transport.resume_reading()
        return bool(self._arrived) and not self.flow.read_paused

    def _parse(self, most: int) -> None:
        piece = bytes(self._arrived[:most])
        del self._arrived[:most]
        cycle, before = self.cycle, len(self.cycle.body) if self.cycle else 0
        super().data_received(piece)
        self._limit_overhead(cycle, len(piece), before)
        self._limit_body()

    def _arrives_whole(self) -> bool:
        """Whether there are bytes to parse of a body of known length, which are parsed as fast as read."""
        if not self._arrived or self.flow.read_paused or self.conn.their_state is not h11.SEND_BODY:
            return False
        return any(name == b"content-length" for name, _ in self.cycle.scope["headers"])

    def _limit_overhead(self, cycle: Any, arrived: int, before: int) -> None:
        """Reject a body that arrives in chunks which are hardly anything but their heads."""
        arrives = cycle is self.cycle and self.conn.their_state is h11.SEND_BODY
        if not arrives or cycle is None or cycle.response_complete:
            self._piece_bytes, self._overhead = _PIECE_BYTES, 0
            return
        own = len(cycle.body) - before
        large = own > arrived * 3 // 4
        self._piece_bytes = min(2 * self._piece_bytes, _LARGE_PIECE_BYTES) if large else _PIECE_BYTES
        self._overhead = max(0, self._overhead + arrived - 2 * own)
        if self._overhead > _MOST_OVERHEAD_BYTES:
            self.discard()
            if self.conn.our_state is h11.SEND_RESPONSE:
                self._reject("the body's chunks are too small")
            else:
                self.transport.abort()

    def _limit_body(self) -> None:
        cycle = self.cycle
        if cycle and not cycle.response_complete and len(cycle.body) >= _BODY_BYTES:
            self.flow.pause_reading()  # the application resumes it; uvicorn itself allows 64 KiB

    def send_400_response(self, msg: str) -> None:
        if len(self.conn.trailing_data[0]) > MAX_HEAD_BYTES:
            self._reject(f"the head of the request has more than {MAX_HEAD_BYTES} bytes")
        else:
            self._reject("the request is not in the form of HTTP/1.1")

    def _reject(self, reason: str) -> None:
        """Answer what never reaches the application, and close the connection."""
        content = dump_json(error_to_json(RequestError(reason, ""))).encode()
        length = str(len(content)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", length),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def is_arriving(self) -> bool:
        """Whether a part of the request is still to come or to be parsed, or could not be parsed."""
        left = self._arrived or self.conn.trailing_data[0]
        return bool(left) or self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def discard(self) -> None:
        """Treat the request as one whose caller has gone."""
        self._arrived.clear()
        if self.cycle and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Lingering(transport, self))  # type: ignore[arg-type]
        _read_little(transport)
        self.flow = _Flow(transport, self)
        self._seen: object = object()
        self._unsent, self._progress_s = 0, self.loop.time()
        self._check = self.loop.call_later(HEAD_S, self._watch)

    def connection_lost(self, exc: Exception | None) -> None:
        self._check.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.DONE and (self._arrived or self.conn.trailing_data[0]):
            # Requests that did not wait for this answer (pipelining, which browsers and clients have given
            # up). Each would be a turn of its own, at no cost to the caller: it may send them again.
            self.transport.close()
            return
        super().on_response_complete()

    def _watch(self) -> None:
        """Close the connection if the head of a request takes too long, or an answer is not read."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._progress_s = unsent, self.loop.time()
        elif self.loop.time() - self._progress_s >= self._unread_s:
            self.transport.abort()
            return
        if not self._awaits_head():
            self._seen = object()
        elif self._seen is self.cycle:
            self.transport.close()
        else:
            self._seen = self.cycle
        self._check = self.loop.call_later(HEAD_S, self._watch)

    def _awaits_head(self) -> bool:
        """Whether a part of a head has arrived, or nothing yet on this connection. uvicorn closes those that
        rest between requests."""
        if self.cycle is None:
            return True
        return self.cycle.response_complete and bool(self.conn.trailing_data[0])


def _read_little(transport: asyncio.Transport) -> None:
    """Receive less at once than the 256 KiB of asyncio, which arrive before reading can be paused."""
    if hasattr(transport, "max_size"):  # plaintext; no option of asyncio sets it
        transport.max_size = _READ_BYTES
    elif hasattr(transport, "set_read_buffer_limits"):  # TLS, which keeps a buffer of 256 KiB besides
        transport.set_read_buffer_limits(_READ_BYTES)
