"""One interactive caller, two calls a second, beside many CaptionBatch streams: what each gets.

    python benchmarks/serving/fairness.py --streams 1 8 32 --seconds 30

Server and callers have a core each. It takes a machine with two cores that does nothing else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from multiprocessing.synchronize import Event
from typing import Any

import grpc
from common import Server, add_arguments, load_images, percentiles_ms, report, running_server

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

_INTERVAL_S = 0.5
_LEAST_BULK = 0.85
_MOST_TIMES_IDLE, _MOST_BATCHES = 3, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--seconds", type=float, default=30.0)
    add_arguments(parser)
    args = parser.parse_args()
    images = load_images(args.images)
    server_core, caller_core = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {caller_core})
    result: dict[str, Any] = {}
    checks: dict[str, bool] = {}
    with running_server(args, cores={server_core}) as server:
        idle, refused = call(server.address, images, args.seconds)
        idle_ms = percentiles_ms(idle)
        result["alone"] = {"interactive_ms": idle_ms, "refused": refused}
        for streams in args.streams:
            alone, batch_s = bulk_alone(server, images, streams, args.seconds)
            with Bulk(server.address, images, streams):
                time.sleep(3)
                before, started = counted(server), time.monotonic()
                times, refused = call(server.address, images, args.seconds)
                rate = (counted(server) - before - len(times)) / (time.monotonic() - started)
            two_batches_ms = 1000 * _MOST_BATCHES * batch_s
            found = percentiles_ms(times) if times else {"p99": float("inf")}
            result[f"{streams} streams"] = {
                "interactive_ms": found,
                "refused": refused,
                "bulk_per_s": round(rate, 1),
                "bulk_alone_per_s": round(alone, 1),
                "two_batches_ms": round(two_batches_ms),
            }
            limit_ms = max(_MOST_TIMES_IDLE * idle_ms["p99"], two_batches_ms)
            checks[f"beside {streams} streams none is refused"] = not refused
            checks[f"beside {streams} streams p99 is under {limit_ms:.0f} ms"] = found["p99"] <= limit_ms
            checks[f"{streams} streams keep {_LEAST_BULK} of their rate"] = rate >= _LEAST_BULK * alone
    return report(result, checks)


def call(address: str, images: list[bytes], seconds: float) -> tuple[list[float], int]:
    """How long each answer took, in seconds, and how many calls were refused."""
    times, refused = [], 0
    with grpc.insecure_channel(address, [("grpc.enable_retries", 0)]) as channel:
        stub = CaptionServiceStub(channel)
        end = time.monotonic() + seconds
        number = 0
        while (started := time.monotonic()) < end:
            number += 1
            try:
                stub.Caption(pb.CaptionRequest(image=images[number % len(images)]), timeout=30)
                times.append(time.monotonic() - started)
            except grpc.RpcError:
                refused += 1
            time.sleep(max(0.0, started + _INTERVAL_S - time.monotonic()))
    return times, refused


def bulk_alone(server: Server, images: list[bytes], streams: int, seconds: float) -> tuple[float, float]:
    """Images a second of the streams when they are alone, and seconds a batch."""
    with Bulk(server.address, images, streams):
        time.sleep(3)
        before, started = [counted(server), *computed(server)], time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - started
        images_more, s_more, batches_more = (
            now - then for now, then in zip([counted(server), *computed(server)], before, strict=True)
        )
    return images_more / took_s, s_more / max(1, batches_more)


def counted(server: Server) -> float:
    return server.metric("captioner_images_total")


def computed(server: Server) -> tuple[float, float]:
    """Seconds of batches so far, and their number."""
    return (
        server.metric("captioner_compute_seconds_sum"),
        server.metric("captioner_compute_seconds_count"),
    )


class Bulk:
    """Endless streams, in a process of their own."""

    def __init__(self, address: str, images: list[bytes], streams: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._process = context.Process(target=_stream, args=(address, images, streams, self._stop))

    def __enter__(self) -> None:
        self._process.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join()


def _stream(address: str, images: list[bytes], streams: int, stop: Event) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from contextlib import suppress

    def requests() -> Any:
        number = 0
        while not stop.is_set():
            yield pb.CaptionBatchRequest(id=str(number), image=images[number % len(images)])
            number += 1

    def one(_: int) -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            while not stop.is_set():
                with suppress(grpc.RpcError):
                    for _answer in CaptionServiceStub(channel).CaptionBatch(requests()):
                        pass

    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(one, range(streams)))


if __name__ == "__main__":
    sys.exit(main())
