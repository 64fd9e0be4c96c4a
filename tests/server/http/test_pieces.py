"""HTTP: bodies are parsed in pieces, and connections take turns."""

import asyncio
import json

import pytest
from support.http_serving import IMAGE, connect, expected
from support.virtual_time import Clock
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner_server.http.port import protocol


def in_chunks(body: bytes, size: int) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)


def test_a_body_of_heads_of_chunks_ends_the_connection(http_server):
    head = b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nContent-Type: image/png\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    for chunks in (in_chunks(bytes(4000), 1), b"1;" + b"x" * 12_000 + b"\r\n"):
        with connect(http_server) as bare:
            bare.sendall(head + chunks)
            assert bare.makefile("rb").read().startswith(b"HTTP/1.1 400 ")


@pytest.fixture
def pieces(monkeypatch):
    """The sizes of what is parsed at once."""
    sizes = []
    plain = H11Protocol.data_received

    def watched(self, data):
        sizes.append(len(data))
        plain(self, data)

    monkeypatch.setattr(H11Protocol, "data_received", watched)
    return sizes


def test_a_body_in_tiny_chunks_is_read_in_small_pieces(http_server, pieces):
    chunks = in_chunks(IMAGE, 6)
    with connect(http_server) as bare:
        head = b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nContent-Type: image/png\r\nConnection: close\r\n"
        bare.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        answer = bare.makefile("rb").read()
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == expected(http_server)
    assert sum(pieces) >= len(chunks) and max(pieces) <= 512


def test_a_body_of_heads_of_chunks_is_parsed_no_further_than_some_chunks(http_server, pieces):
    head = b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(http_server) as bare:
        bare.sendall(head + in_chunks(bytes(700), 1))
        assert bare.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
    assert sum(pieces) <= 1024


@pytest.mark.parametrize("length", [b"Content-Length: 99999", b"Transfer-Encoding: chunked"])
def test_a_body_that_hardly_costs_anything_is_parsed_in_large_pieces(http, http_server, pieces, length):
    """An ordinary caller waits for few turns."""
    body = bytes(99_999) if b"Length" in length else in_chunks(bytes(99_999), 8192) + b"0\r\n\r\n"
    head = b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + length + b"\r\n\r\n"
    with connect(http_server) as bare:
        bare.sendall(head + body)
        assert bare.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
    assert max(pieces) >= 4096


@pytest.fixture
def clock(monkeypatch):
    """By which pieces take time."""
    clock = Clock()
    monkeypatch.setattr(protocol, "time", clock)
    return clock


class Costly:
    """A connection whose pieces take so long, and whose bytes end with its last piece."""

    def __init__(self, clock: Clock, name: str, piece_s: float, count: int, fed: list[str]) -> None:
        self.loop, self.waits, self.parsed_s = asyncio.get_running_loop(), False, 0.0
        self._clock, self._name, self._piece_s, self._left, self._fed = clock, name, piece_s, count, fed

    def feed(self) -> bool:
        self._clock.now_s += self._piece_s
        self._fed.append(self._name)
        self._left -= 1
        return self._left > 0


def test_connections_take_turns_by_the_time_that_their_pieces_take(clock):
    async def run() -> list[str]:
        fed: list[str] = []
        feeder = protocol._Feeder()
        for name, piece_s, count in (("dear", 0.05, 20), ("cheap", 0, 3), ("dear", 0.05, 20)):
            feeder.add(Costly(clock, name, piece_s, count, fed))
        while len(fed) < 43:
            await asyncio.sleep(0.01)
        return fed

    fed = clock.run(run())
    assert fed[:5].count("cheap") == 3  # before anybody's second costly piece


def test_a_connection_that_fails_does_not_end_the_turns_of_others(clock):
    class Failing(Costly):
        def feed(self) -> bool:
            raise OSError("the caller has gone")

    async def run() -> list[str]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        fed: list[str] = []
        feeder = protocol._Feeder()
        for kind in (Failing, Costly):
            feeder.add(kind(clock, "other", 0, 3, fed))
        while len(fed) < 3:
            await asyncio.sleep(0.01)
        return fed

    assert len(clock.run(asyncio.wait_for(run(), 10))) == 3


def test_the_event_loop_has_time_for_others_while_more_arrives_than_can_be_parsed(clock):
    async def run() -> int:
        fed: list[str] = []
        feeder = protocol._Feeder()
        feeder.add(Costly(clock, "dear", 0.02, 1000, fed))
        while not fed:
            await asyncio.sleep(0)
        before = len(fed)
        for _ in range(100):
            clock.now_s += 0.001  # which others take
            await asyncio.sleep(0)
        return len(fed) - before

    assert clock.run(run()) < 50  # instead of 100
