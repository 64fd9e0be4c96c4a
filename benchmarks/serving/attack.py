"""Attack a server as an outsider would, and see how long health and an innocent caller wait.

    python benchmarks/serving/attack.py --markdown

Each attack runs for so long on default settings, attacker and server on a core each. It takes a machine with
two cores that does nothing else.
"""

from __future__ import annotations

import argparse
import gzip
import multiprocessing
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from common import add_arguments, load_images, percentiles_ms, pinned, report, running_server, watched_health

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub
from captioner_server.inference import grpc_predict_v2_pb2 as oip

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

_HEALTH_P99_MS, _HEALTH_MAX_MS = 100, 500
_MEMORY_MIB = 4096
CAPTION = "/captioner.v1.CaptionService/Caption"
INFER = "/inference.GRPCInferenceService/ModelInfer"
HEALTH = "/grpc.health.v1.Health/Check"


Once = Callable[[grpc.Channel], object]
"""Attacks once, over a channel of its own."""


def unary(method: str, message: bytes) -> Once:
    return lambda channel: channel.unary_unary(method)(message, timeout=20)


def shapes(address: str) -> Once:
    """A shape of 60,000 dimensions."""
    request = oip.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE", datatype="BYTES", shape=[2**62] * 60_000)
    return unary(INFER, request.SerializeToString())


def elements(address: str) -> Once:
    """Eight million empty elements."""
    request = oip.ModelInferRequest(model_name="captioner")
    request.inputs.add(name="IMAGE").contents.bytes_contents.extend([b""] * 8_000_000)
    return unary(INFER, request.SerializeToString())


def names(address: str) -> Once:
    """A model name of 4 KB, for logs and details."""
    return unary(INFER, oip.ModelInferRequest(model_name="x" * 4000).SerializeToString())


def scans(address: str) -> Once:
    """A progressive JPEG of empty scans."""
    from support.bombs import scan_bomb

    return unary(CAPTION, pb.CaptionRequest(image=scan_bomb()).SerializeToString())


def strips(address: str) -> Once:
    """A TIFF of a million strips."""
    from support.bombs import strip_bomb

    return unary(CAPTION, pb.CaptionRequest(image=strip_bomb()).SerializeToString())


def maximum(address: str) -> Once:
    """A PNM whose values are converted in Python."""
    image = b"P5 4000 4000 100\n" + bytes(16_000_000)
    return unary(CAPTION, pb.CaptionRequest(image=image).SerializeToString())


def memory(address: str) -> Once:
    """A PNG of 121 megapixels."""
    from support.bombs import large

    return unary(CAPTION, pb.CaptionRequest(image=large("PNG", 11_000)).SerializeToString())


def refused(address: str) -> Once:
    """30 MB that are not an image."""
    return unary(CAPTION, pb.CaptionRequest(image=bytes(30 * 2**20)).SerializeToString())


def padded(address: str) -> Once:
    """A small photo with a tail of 30 MB."""
    return unary(
        CAPTION, pb.CaptionRequest(image=load_images(None, 1)[0] + bytes(30 * 2**20)).SerializeToString()
    )


def health(address: str) -> Once:
    """30 MB to a health check."""
    return unary(HEALTH, b"\x0a\x80\x80\x80\x0f" + bytes(15 * 2**21))


def uploads(address: str) -> Once:
    """Messages that never arrive."""
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        stalling = Stalling(address, CAPTION, 30 * 2**20)
        with suppress(OSError):
            for _ in range(16):
                stalling.call(1000)
                time.sleep(0.1)
        stalling.socket.close()

    return once


def compressed(address: str) -> Once:
    """A gzip message that inflates to 50 MiB."""
    message = gzip.compress(bytes(50 * 2**20))
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        attacker = Stalling(address, CAPTION, len(message))
        with suppress(OSError):
            for _ in range(16):
                attacker.send_compressed(message)
                attacker.wait_for_answer()
        attacker.socket.close()

    return once


def metadata(address: str) -> Once:
    """A PNG of 500,000 texts."""
    from support.bombs import text_bomb

    return unary(CAPTION, pb.CaptionRequest(image=text_bomb()).SerializeToString())


def settings(address: str) -> Once:
    """HTTP/2 settings without end."""
    return _frames(address, lambda attacker: attacker.settle(5000))


def opened(address: str) -> Once:
    """New connections without end."""
    return _frames(address, lambda attacker: attacker.settle(1))


def headers(address: str) -> Once:
    """A list of headers of 14 MB."""
    return _frames(address, lambda attacker: attacker.continue_headers(1000))


def resets(address: str) -> Once:
    """Calls that are cancelled at once."""
    return _frames(address, lambda attacker: attacker.reset(500))


def probes(address: str) -> Once:
    """Health checks whose message never arrives, over 32 connections by each caller."""
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        with ExitStack() as opened, suppress(OSError):
            for _ in range(32):
                stalling = Stalling(address, HEALTH, 1000)
                opened.enter_context(stalling.socket)
                stalling.call(10)
            time.sleep(1)

    return once


def connections(address: str) -> Once:
    """Connections that say nothing, 256 by each caller."""
    host, port = address.split(":")

    def once(channel: grpc.Channel) -> None:
        with ExitStack() as opened, suppress(OSError):
            for _ in range(256):
                opened.enter_context(socket.create_connection((host, int(port)), 5))
            time.sleep(1)

    return once


def _frames(address: str, send: Callable[[Any], None]) -> Once:
    from support.stalling import Stalling

    def once(channel: grpc.Channel) -> None:
        attacker = Stalling(address, CAPTION, 0)
        with suppress(OSError):
            send(attacker)
        attacker.socket.close()

    return once


def searches(address: str) -> Once:
    """The most expensive search, each with a length normalisation of its own."""
    image = load_images(None, 1)[0]

    def once(channel: grpc.Channel) -> None:
        alpha = random.uniform(0, 2)
        options = pb.CaptionOptions(beam_size=16, max_words=64, length_normalization=alpha)
        CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=image, options=options), timeout=20)

    return once


def streams(address: str) -> Once:
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


def silent(address: str) -> Once:
    """Silent CaptionBatch streams."""

    def requests() -> Iterator[pb.CaptionBatchRequest]:
        time.sleep(5)
        yield from ()

    return lambda channel: list(CaptionServiceStub(channel).CaptionBatch(requests(), timeout=20))


ATTACKS: dict[str, Callable[[str], Once]] = {
    attack.__name__: attack
    for attack in (
        *(shapes, elements, names, scans, strips, maximum, memory),
        *(
            refused,
            padded,
            health,
            uploads,
            compressed,
            metadata,
            settings,
            opened,
            headers,
            resets,
            probes,
            connections,
            searches,
            streams,
            silent,
        ),
    )
}
_CALLERS = {"searches": 40, "streams": 32, "silent": 64}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="for each attack (default: 8)")
    parser.add_argument("--attack", choices=ATTACKS, action="append", help="default: all")
    parser.add_argument("--callers", type=int, default=8, help="attackers at once, where it takes no more")
    parser.add_argument("--markdown", action="store_true", help="print a table")
    parser.add_argument("--envoy", action="store_true", help="through the Envoy of deploy/, on the same core")
    add_arguments(parser)
    args = parser.parse_args()
    image = load_images(args.images, 1)[0]
    server_core, caller_core = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {caller_core})
    result: dict[str, Any] = {}
    checks: dict[str, bool] = {}
    context = multiprocessing.get_context("spawn")
    for name in args.attack or ATTACKS:
        with ExitStack() as stack:
            server = stack.enter_context(running_server(args, cores={server_core}))
            address = server.address
            if args.envoy:
                address = stack.enter_context(_envoy(address, server_core))
            times = stack.enter_context(watched_health(address))
            stop = context.Event()
            callers = max(args.callers, _CALLERS.get(name, 0))
            attacker = context.Process(target=_attack, args=(address, name, callers, stop))
            attacker.start()
            innocent, lost = call(address, image, args.seconds)
            stop.set()
            attacker.join(2)
            attacker.kill()
            resident = server.resident_mib()
        found = {"health_ms": percentiles_ms(times), "innocent_ms": percentiles_ms(innocent or [9e9])}
        result[name] = {**found, "lost": lost, "memory_mib": round(resident)}
        checks[f"{name}: health"] = (
            found["health_ms"]["p99"] <= _HEALTH_P99_MS and found["health_ms"]["max"] <= _HEALTH_MAX_MS
        )
        checks[f"{name}: no innocent call is lost"] = not lost
        checks[f"{name}: memory"] = resident <= _MEMORY_MIB
    if args.markdown:
        return print_table(result, checks)
    return report(result, checks)


def print_table(result: dict[str, Any], checks: dict[str, bool]) -> int:
    """Print the figures as a Markdown table; returns the exit status."""
    print("| attack | health: p99, max (ms) | ordinary call: p50, p99 (ms) | lost | memory (MiB) | holds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, found in result.items():
        what = (ATTACKS[name].__doc__ or name).rstrip(".")
        health_ms, innocent_ms = found["health_ms"], found["innocent_ms"]
        for reason in sorted(set(found["lost"])):
            print(f"{name}: lost: {reason}", file=sys.stderr)
        holds = all(held for check, held in checks.items() if check.startswith(f"{name}:"))
        print(
            f"| {what} | {health_ms['p99']:.0f}, {health_ms['max']:.0f} "
            f"| {innocent_ms['p50']:.0f}, {innocent_ms['p99']:.0f} | {len(found['lost'])} "
            f"| {found['memory_mib']} | {'yes' if holds else 'no'} |"
        )
    return 0 if all(checks.values()) else 1


def call(address: str, image: bytes, seconds: float) -> tuple[list[float], list[str]]:
    """How long each answer took, in seconds, and how calls failed."""
    times, lost = [], []
    end = time.monotonic() + seconds
    with grpc.insecure_channel(address, [("grpc.enable_retries", 0)]) as channel:
        while (started := time.monotonic()) < end:
            try:
                CaptionServiceStub(channel).Caption(pb.CaptionRequest(image=image), timeout=20)
                times.append(time.monotonic() - started)
            except grpc.RpcError as error:
                lost.append(f"{error.code().name}: {error.details()}")
            time.sleep(0.2)
    return times, lost


@contextmanager
def _envoy(server: str, core: int) -> Iterator[str]:
    """The address of Envoy in front of a server, on a core."""
    from support import topology

    with TemporaryDirectory() as folder, ExitStack() as stack:
        with pinned({core}):
            port = int(server.rpartition(":")[2])
            address, _ = stack.enter_context(topology.envoy([port], Path(folder)))
        yield address


def _attack(address: str, name: str, callers: int, stop: Event) -> None:
    from concurrent.futures import ThreadPoolExecutor

    attack = ATTACKS[name](address)

    def one(_: int) -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not stop.is_set():
                with suppress(grpc.RpcError):
                    attack(channel)

    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(one, range(callers)))


if __name__ == "__main__":
    sys.exit(main())
