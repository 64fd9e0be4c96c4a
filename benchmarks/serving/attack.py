"""Attack a server as an outsider would, and see how long ordinary callers wait for captions and health.

    python benchmarks/serving/attack.py --markdown
    python benchmarks/serving/attack.py --markdown --front haproxy --floods

Each attack runs for so long on default settings. The server, what is in front of it and ordinary callers have
one core, attackers another. Attackers that use plain sockets have other addresses (127.0.0.2 and so on) than
ordinary callers. It takes a machine with two cores that does nothing else.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing.synchronize import Event
from typing import Any

import grpc
from attacks import ATTACKS, CALLERS, FLOODS, OVER_HTTP, Target
from common import add_arguments, load_images, percentiles_ms, pinned, report, running_server
from front import FRONTS, fronted
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

_CAPTION_P99_MS, _HEALTH_P99_MS, _HEALTH_MAX_MS = 1000, 100, 500
_MEMORY_MIB = 4096
_TIMEOUT_S = 20
_FROM_ONE_ADDRESS = 48
"""Most attackers behind a front, which takes 64 connections from an address: those that use gRPC have the
address of ordinary callers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="for each attack (default: 8)")
    parser.add_argument("--attack", choices=ATTACKS, action="append", help="default: all")
    parser.add_argument("--floods", action="store_true", help="only floods, and what is sent over HTTP")
    parser.add_argument("--callers", type=int, default=8, help="attackers at once, where it takes no more")
    parser.add_argument(
        "--front", choices=FRONTS, help="what stands in front of the server, on the same core"
    )
    parser.add_argument("--markdown", action="store_true", help="print a table")
    add_arguments(parser)
    args = parser.parse_args()
    image = load_images(args.images, 1)[0]
    server_core, attacker_core = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {server_core})
    result: dict[str, Any] = {}
    checks: dict[str, bool] = {}
    floods = [*FLOODS, *(attack.__name__ for attack in OVER_HTTP)] if args.floods else list(ATTACKS)
    if args.markdown:
        print(_HEAD, flush=True)
    for name in args.attack or floods:
        found, peak_mib = attacked(name, image, args, server_core, attacker_core)
        result[name] = {**found, "memory_mib": round(peak_mib)}
        captions, health = found["new"]["ms"], found["health"]["ms"]
        checks[f"{name}: captions of new callers"] = captions["p99"] <= _CAPTION_P99_MS
        checks[f"{name}: captions of connected callers"] = found["connected"]["ms"]["p99"] <= _CAPTION_P99_MS
        checks[f"{name}: captions over HTTP"] = found["http"]["ms"]["p99"] <= _CAPTION_P99_MS
        checks[f"{name}: health"] = health["p99"] <= _HEALTH_P99_MS and health["max"] <= _HEALTH_MAX_MS
        checks[f"{name}: no ordinary call is lost"] = not any(one["lost"] for one in found.values())
        checks[f"{name}: memory"] = peak_mib <= _MEMORY_MIB
        if args.markdown:
            print_row(name, result[name], checks)
    return (0 if all(checks.values()) else 1) if args.markdown else report(result, checks)


def attacked(
    name: str, image: bytes, args: argparse.Namespace, core: int, attacker_core: int
) -> tuple[dict[str, dict[str, Any]], float]:
    """How ordinary callers of each kind fared beside an attack, and the memory of the server in MiB."""
    context = multiprocessing.get_context("spawn")
    began, stop = context.Event(), context.Event()
    with ExitStack() as stack:
        server = stack.enter_context(running_server(args, "--http-port", "0", cores={core}))
        places = server.address, server.events["http"]["url"].rpartition("/")[2]
        if args.front:
            places = stack.enter_context(fronted(args.front, places, core))
        receiver, sender = context.Pipe(duplex=False)
        callers = context.Process(target=call_all, args=(*places, image, args.seconds, began, sender))
        callers.start()
        receiver.recv()  # those that connect before the attack have done so
        count = max(args.callers, CALLERS.get(name, 0))
        if args.front:
            count = min(count, _FROM_ONE_ADDRESS)
        with pinned({attacker_core}):
            attackers = context.Process(target=_attack, args=(*places, name, count, began, stop))
            attackers.start()
        found = receiver.recv()
        stop.set()
        callers.join()
        attackers.join(2)
        attackers.kill()
        return found, server.peak_mib()


_COLUMNS = (
    "attack",
    "new callers: p50, p99 (ms)",
    "connected",
    "HTTP",
    "health: p99, max",
    "lost",
    "MiB",
    "holds",
)
_HEAD = f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}"


def print_row(name: str, found: dict[str, Any], checks: dict[str, bool]) -> None:
    what = (ATTACKS[name].__doc__ or name).rstrip(".")
    captions = " | ".join(
        f"{found[kind]['ms']['p50']:.0f}, {found[kind]['ms']['p99']:.0f}"
        for kind in ("new", "connected", "http")
    )
    health = found["health"]["ms"]
    lost = [f"{kind}: {reason}" for kind in _KINDS for reason in found[kind]["lost"]]
    for reason in sorted(set(lost)):
        print(f"{name}: lost: {reason}", file=sys.stderr)
    broken = [
        check.partition(": ")[2]
        for check, held in checks.items()
        if check.startswith(f"{name}:") and not held
    ]
    held = f"no: {', '.join(broken)}" if broken else "yes"
    waits = f"{captions} | {health['p99']:.0f}, {health['max']:.0f}"
    print(f"| {what} | {waits} | {len(lost)} | {found['memory_mib']} | {held} |", flush=True)


def call_all(address: str, over_http: str, image: bytes, seconds: float, began: Event, sender: Any) -> None:
    """Ordinary callers of each kind, in a process and a session of their own."""
    os.setsid()
    request = pb.CaptionRequest(image=image)

    def caption(channel: grpc.Channel) -> None:
        CaptionServiceStub(channel).Caption(request, timeout=_TIMEOUT_S)

    def health(channel: grpc.Channel) -> None:
        HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_S)

    def post() -> None:
        host, port = over_http.split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT_S)
        try:
            connection.request("POST", "/v1/caption", image, {"Content-Type": "image/jpeg"})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise OSError(answer.status)
        finally:
            connection.close()

    def anew() -> None:
        with _channel(address) as channel:
            caption(channel)

    with _channel(address) as connected:
        caption(connected)
        calls = {"new": anew, "connected": lambda: caption(connected), "http": post}
        intervals = {"new": 0.4, "connected": 0.4, "http": 0.4, "health": 0.05}
        watched = _channel(address)
        calls["health"] = lambda: health(watched)
        calls["health"]()
        sender.send(None)
        began.wait()
        found: dict[str, dict[str, Any]] = {}
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=lambda k=kind: found.update({k: repeat(calls[k], intervals[k], end)}))
            for kind in _KINDS
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    sender.send(found)


_KINDS = ("new", "connected", "http", "health")


def repeat(call: Callable[[], None], interval_s: float, end: float) -> dict[str, Any]:
    """How long each answer took (a call that failed counts as the longest wait), and how calls failed."""
    times, lost = [], []
    while (started := time.monotonic()) < end:
        try:
            call()
            times.append(time.monotonic() - started)
        except grpc.RpcError as error:
            lost.append(f"{error.code().name}: {error.details()}")  # type: ignore[attr-defined]
            times.append(_TIMEOUT_S)
        except (OSError, http.client.HTTPException) as error:
            lost.append(f"{type(error).__name__}: {error}")
            times.append(_TIMEOUT_S)
        time.sleep(interval_s)
    return {"ms": percentiles_ms(times), "calls": len(times), "lost": lost}


def _channel(address: str) -> grpc.Channel:
    return grpc.insecure_channel(address, [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)])


def _attack(address: str, over_http: str, name: str, callers: int, began: Event, stop: Event) -> None:
    from concurrent.futures import ThreadPoolExecutor

    os.setsid()

    def one(number: int) -> None:
        attack = ATTACKS[name](Target(address, over_http, f"127.0.0.{2 + number % 200}"))
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not stop.is_set():
                with suppress(grpc.RpcError, OSError):
                    attack(channel)

    began.set()
    with ThreadPoolExecutor(callers) as pool:
        list(pool.map(one, range(callers)))


if __name__ == "__main__":
    sys.exit(main())
