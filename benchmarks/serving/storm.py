"""Overload: requests arrive at many times the server's capacity. Is each answered or rejected, is memory
bounded, and does goodput stay near its peak?

    python benchmarks/serving/storm.py --times 10 --seconds 60 [--model BUNDLE] [--images FOLDER]

Peak goodput is measured first, with as many callers as fill a few batches. Then requests are sent at a fixed
rate, `--times` that peak, whether or not earlier ones were answered; each has a deadline. The callers are one
process, which sends encoded messages and reads no answers, and shares the machine with the server: the cores
that it uses are not available to the server. `--apart` gives half of the cores to each, for both
measurements, as if the callers were on machines of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import time
from collections import Counter

import grpc
from common import add_arguments, load_images, percentiles_ms, report, running_server, watched_health

from captioner.v1 import captioner_pb2 as pb

SHARE_OF_PEAK, MAX_GROWTH_MIB = 0.8, 512
ALLOWED = {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
TICK_S = 0.01
METHOD = "/captioner.v1.CaptionService/Caption"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=float, default=10, help="of the peak's rate (default: 10)")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--deadline-s", type=float, default=5, help="of each request (default: 5)")
    parser.add_argument("--callers", type=int, default=48, help="to find the peak with (default: 48)")
    parser.add_argument("--apart", action="store_true", help="server and callers on cores of their own")
    add_arguments(parser)
    args = parser.parse_args()
    requests = [pb.CaptionRequest(image=image).SerializeToString() for image in load_images(args.images)]
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2 if args.apart else 0
    with running_server(args, cores=set(cores[half:]) if half else None) as server:
        if half:
            os.sched_setaffinity(0, cores[:half])
        cpu_s = [(server.cpu_s(), time.process_time())]
        peak = asyncio.run(find_peak(server.address, requests, args))
        cpu_s.append((server.cpu_s(), time.process_time()))
        before_mib = server.peak_mib()
        with watched_health(server.address, 0.1) as health:
            codes, goodput, waits = asyncio.run(storm(server.address, requests, peak * args.times, args))
        cpu_s.append((server.cpu_s(), time.process_time()))
        growth_mib = server.peak_mib() - before_mib
        status = server.end()
    result = {
        "peak_images_per_s": round(peak, 2),
        "requests_per_s": round(sum(codes.values()) / args.seconds, 1),
        "seconds": args.seconds,
        "codes": dict(codes),
        "goodput_images_per_s": round(goodput, 2),
        "share_of_peak": round(goodput / peak, 3),
        "latency_ms": percentiles_ms(waits),
        "health_ms": percentiles_ms(health),
        "memory_growth_mib": round(growth_mib),
        "apart": args.apart,
        "cpu_s": {
            phase: {"server": round(after[0] - before[0], 1), "callers": round(after[1] - before[1], 1)}
            for phase, (before, after) in zip(("peak", "storm"), itertools.pairwise(cpu_s), strict=True)
        },
    }
    checks = {
        "every request answered or refused": set(codes) <= ALLOWED,
        f"at least {SHARE_OF_PEAK} of peak": goodput >= SHARE_OF_PEAK * peak,
        f"memory grows by less than {MAX_GROWTH_MIB} MiB": growth_mib < MAX_GROWTH_MIB,
        "healthy throughout": max(health) != float("inf") and status == 0,
    }
    return report(result, checks)


async def find_peak(address: str, requests: list[bytes], args: argparse.Namespace) -> float:
    """Images a second with a steady number of callers."""
    done, until = 0, time.perf_counter() + args.seconds / 3
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(METHOD)

        async def run(number: int) -> None:
            nonlocal done
            while time.perf_counter() < until:
                await call(requests[number % len(requests)])
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*map(run, range(args.callers)))
        return done / (time.perf_counter() - started)


async def storm(
    address: str, requests: list[bytes], rate: float, args: argparse.Namespace
) -> tuple[Counter[str], float, list[float]]:
    """Codes of all requests, captions a second while it lasted, and how long each caption took."""
    codes: Counter[str] = Counter()
    waits: list[float] = []
    async with grpc.aio.insecure_channel(address, [("grpc.enable_retries", 0)]) as channel:
        call = channel.unary_unary(METHOD)

        async def ask(number: int) -> None:
            asked = time.perf_counter()
            try:
                await call(requests[number % len(requests)], timeout=args.deadline_s)
                codes["OK"] += 1
                waits.append(time.perf_counter() - asked)
            except grpc.aio.AioRpcError as error:
                codes[error.code().name] += 1

        tasks: set[asyncio.Task[None]] = set()
        started, sent = time.perf_counter(), 0
        while (elapsed_s := time.perf_counter() - started) < args.seconds:
            for number in range(sent, int(elapsed_s * rate)):
                task = asyncio.create_task(ask(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            sent = max(sent, int(elapsed_s * rate))
            await asyncio.sleep(TICK_S)
        goodput = len(waits) / elapsed_s
        await asyncio.gather(*tasks)
    return codes, goodput, waits


if __name__ == "__main__":
    sys.exit(main())
