"""SIGTERM under load, again and again: is any accepted request lost?

    python benchmarks/serving/sigterm.py --rounds 20 [--callers 32] [--model BUNDLE]

A request is lost when its caller got neither a caption nor UNAVAILABLE. Callers make single calls and streams
of images, which they write without pause; none retries. Streams use gRPC's synchronous interface: where a
call ends while a message is being written, the one for asyncio reports INTERNAL instead of the status that it
was sent (grpc/grpc#36066); `captioner_client` knows that.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import Counter
from typing import Any

import grpc
from common import Server, add_arguments, load_images, report, running_server

from captioner.v1 import captioner_pb2 as pb
from captioner.v1.captioner_pb2_grpc import CaptionServiceStub

STREAM_EVERY = 8  # callers of which one streams


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--load-s", type=float, default=2, help="load before each signal (default: 2)")
    add_arguments(parser)
    args = parser.parse_args()
    images = load_images(args.images)
    codes: Counter[str] = Counter()
    statuses: Counter[int] = Counter()
    finished = 0
    for _ in range(args.rounds):
        with running_server(args, "--max-wait-s", "600") as server:  # none is refused for the load itself
            codes += asyncio.run(load_until_told(server, images, args))
            statuses[server.process.wait(120)] += 1
            server.wait_for("stopped")
            finished += bool(server.events["stopped"]["finished"])
    result = {"rounds": args.rounds, "codes": dict(codes), "exit_statuses": dict(statuses)}
    checks = {
        "every caller got a caption or UNAVAILABLE": set(codes) <= {"OK", "UNAVAILABLE"},
        "every exit status is 0": set(statuses) == {0},
        "everything in flight was finished": finished == args.rounds,
    }
    return report(result, checks)


async def load_until_told(server: Server, images: list[bytes], args: argparse.Namespace) -> Counter[str]:
    without_retries = [("grpc.enable_retries", 0)]
    codes: Counter[str] = Counter()

    async def single(stub: Any, number: int) -> None:
        while True:
            try:
                await stub.Caption(pb.CaptionRequest(image=images[number % len(images)]))
                codes["OK"] += 1
            except grpc.aio.AioRpcError as error:
                codes[error.code().name] += 1
                return

    def stream(number: int) -> Counter[str]:
        ends: Counter[str] = Counter()
        requests = (
            pb.CaptionBatchRequest(id=str(turn), image=images[(number + turn) % len(images)])
            for turn in range(100_000)
        )
        with grpc.insecure_channel(server.address, without_retries) as channel:
            try:
                for answer in CaptionServiceStub(channel).CaptionBatch(requests):
                    ends["OK" if answer.HasField("caption") else answer.error.reason] += 1
            except grpc.RpcError as error:
                ends[error.code().name] += 1
        return ends

    async with grpc.aio.insecure_channel(server.address, without_retries) as channel:
        stub = CaptionServiceStub(channel)
        singles = [asyncio.create_task(single(stub, n)) for n in range(args.callers) if n % STREAM_EVERY]
        streams = [asyncio.to_thread(stream, n) for n in range(0, args.callers, STREAM_EVERY)]
        streaming = asyncio.gather(*streams)
        await asyncio.sleep(args.load_s)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*singles)
        return sum(await streaming, codes)


if __name__ == "__main__":
    sys.exit(main())
