"""Invalid input of all kinds: damaged images, wrong protobufs, junk on the port, callers that vanish.

    python benchmarks/serving/fuzz.py --seconds 100 [--seed 1] [--model BUNDLE]

Afterwards the server must caption as before, hold no calls, and not have failed inside.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable

import grpc
from common import Server, add_arguments, load_images, report, running_server

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

METHODS = [f"captioner.v1.CaptionService/{name}" for name in ("Caption", "StreamCaption", "CaptionBatch")]
METHODS += ["inference.GRPCInferenceService/ModelInfer", "captioner.v1.CaptionService/Nothing"]
ALLOWED = {"OK", "INVALID_ARGUMENT", "UNIMPLEMENTED", "NOT_FOUND", "RESOURCE_EXHAUSTED", "vanished", "closed"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--seed", type=int, default=1)
    add_arguments(parser)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    images = load_images(args.images)
    outcomes: Counter[str] = Counter()
    with running_server(args) as server:
        before = caption(server, images[0])
        before_mib = server.peak_mib()
        until = time.monotonic() + args.seconds
        while time.monotonic() < until:
            attack = chance.choice([send_image, send_image, send_bytes, send_junk, vanish])
            outcomes[attack(server, images, chance)] += 1
        time.sleep(1)
        open_calls, admitted = (
            server.metric("captioner_in_flight_calls"),
            server.metric("captioner_admitted_images"),
        )
        after = caption(server, images[0])
        growth_mib = server.peak_mib() - before_mib
        defects = [line for line in server.errors if "defect" in line or "Traceback" in line]
        status = server.end()
    result = {"seed": args.seed, "outcomes": dict(outcomes), "memory_growth_mib": round(growth_mib)}
    checks = {
        "each gets an answer or a closed stream": set(outcomes) <= ALLOWED,
        "nothing is left open": open_calls == 0 and admitted == 0,
        "it captions as before": before == after and status == 0,
        "no defect shows": not defects,
    }
    print(*defects[:5], sep="", file=sys.stderr)
    return report(result, checks)


def caption(server: Server, image: bytes) -> str:
    with grpc.insecure_channel(server.address) as channel:
        return CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=image), timeout=60).caption.text


def damaged(image: bytes, chance: random.Random) -> bytes:
    changed = bytearray(image)
    for _ in range(chance.randrange(1, 40)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.randrange(len(changed) + 1)] if chance.random() < 0.5 else changed)


def send_image(server: Server, images: list[bytes], chance: random.Random) -> str:
    """A damaged image, with options that may be out of range."""
    options = pb.CaptionOptions(
        beam_size=chance.choice([1, 3, -1, 17]), alternatives=chance.choice([0, 0, 2, -5]), max_words=5
    )
    request = pb.CaptionRequest(image=damaged(chance.choice(images), chance), options=options)
    with grpc.insecure_channel(server.address) as channel:
        return _code(lambda: CaptionServiceStub(channel).Caption(request, timeout=60))


def send_bytes(server: Server, images: list[bytes], chance: random.Random) -> str:
    """Bytes that are no message, or a damaged message."""
    message = pb.CaptionRequest(image=images[0]).SerializeToString()
    body = chance.choice([chance.randbytes(chance.randrange(5000)), damaged(message, chance)])
    with grpc.insecure_channel(server.address) as channel:
        method = channel.stream_stream(f"/{chance.choice(METHODS)}")
        return _code(lambda: list(method(iter([body] * chance.randrange(1, 4)), timeout=60)))


def send_junk(server: Server, images: list[bytes], chance: random.Random) -> str:
    """What is no HTTP/2."""
    host, port = server.address.split(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if chance.random() < 0.5 else b""
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(preface + chance.randbytes(chance.randrange(1, 20_000)))
        connection.settimeout(0.2)
        while connection.recv(65536):
            pass
    return "closed"


def vanish(server: Server, images: list[bytes], chance: random.Random) -> str:
    """Start calls of all kinds and go."""
    with grpc.insecure_channel(server.address) as channel:
        stub = CaptionServiceStub(channel)
        image = chance.choice(images)
        stub.Caption.future(pb.CaptionRequest(image=image), timeout=60)
        stub.StreamCaption(pb.StreamCaptionRequest(image=image), timeout=60)
        stub.CaptionBatch((pb.CaptionBatchRequest(image=image) for _ in range(1000)), timeout=60)
        time.sleep(chance.random() * 0.2)
    return "vanished"


def _code(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


if __name__ == "__main__":
    sys.exit(main())
