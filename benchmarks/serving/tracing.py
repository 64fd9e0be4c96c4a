"""What traces cost: processor time of the server for an image, without them and with every call recorded.

    tracing.py [--markdown docs/operations.md] [--rounds 40] [--seconds 3] [--model BUNDLE] [--images FOLDER]

Two servers, one of which records every call, take turns, about five minutes in all: a machine whose speed
changes meanwhile changes it for both. A collector in a process of its own takes the spans and drops them. The
exit status is 1 if traces cost more than 2%.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from common import Server, add_arguments, load_images, percentiles_ms, run_clients, running_server
from measures import machine, markdown
from measures.bench import Table

MOST_SHARE = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3, help="of each round")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write between the markers of this document"
    )
    add_arguments(parser)
    args = parser.parse_args()
    images = load_images(args.images)
    about = machine.describe()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    collector = context.Process(target=collect, args=(theirs,), daemon=True)
    collector.start()
    flags = ("--trace-endpoint", f"http://127.0.0.1:{ours.recv()}")
    with running_server(args) as plain, running_server(args, *flags) as traced:
        sides = {"no": Side(plain), "every call": Side(traced)}
        for side in sides.values():  # to warm up
            side.measure(images, args.clients, 2)
            side.rounds.clear()
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
            for side in list(sides.values())[:: -1 if number % 2 else 1]:
                side.measure(images, args.clients, args.seconds)
        traced.end()
    ours.send(None)
    spans = ours.recv()
    costs = [
        on["processor time an image, ms"] / off["processor time an image, ms"] - 1
        for off, on in zip(*(side.rounds for side in sides.values()), strict=True)
    ]
    share = statistics.median(costs)
    low, _, high = statistics.quantiles(costs, n=4) if len(costs) > 1 else costs * 3
    rows = [{"traces": name, **middle(side.rounds)} for name, side in sides.items()]
    note = (
        f"Traces cost {share:.1%} of the processor time (half of the rounds: {low:.1%} to {high:.1%}), "
        f"{spans / sides['every call'].images:.1f} spans an image. Medians of {args.rounds} rounds of "
        f"{args.seconds:g} s, {args.clients} callers."
    )
    markdown.show(Table("", rows, note), about, args.markdown, "tracing")
    return 0 if share <= MOST_SHARE else 1


class Side:
    """A server, and what was measured on it."""

    def __init__(self, server: Server) -> None:
        self.server, self.images = server, 0
        self.rounds: list[dict[str, float]] = []
        self._cpu_s = server.cpu_s()

    def measure(self, images: list[bytes], clients: int, seconds: float) -> None:
        """A round. Spans that are sent after it count in the next."""
        waits, errors = asyncio.run(run_clients(self.server.address, images, clients, seconds))
        if errors:
            raise SystemExit(f"{len(errors)} calls failed: {errors[0]}")
        before_s, self._cpu_s = self._cpu_s, self.server.cpu_s()
        self.images += len(waits)
        times = percentiles_ms(waits)
        cost_ms = 1000 * (self._cpu_s - before_s) / len(waits)
        self.rounds.append(
            {"processor time an image, ms": cost_ms, "p50, ms": times["p50"], "p99, ms": times["p99"]}
        )


def middle(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The row of some rounds."""
    return {name: round(statistics.median(one[name] for one in rounds), 2) for name in rounds[0]}


def collect(pipe: Connection) -> None:
    """Say on which port spans are taken; when asked, how many came."""
    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as stubs

    count = 0

    class Collector(stubs.TraceServiceServicer):
        def Export(self, request: pb.ExportTraceServiceRequest, _: Any) -> pb.ExportTraceServiceResponse:
            nonlocal count
            count += sum(len(scope.spans) for one in request.resource_spans for scope in one.scope_spans)
            return pb.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    stubs.add_TraceServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    pipe.send(port)
    pipe.recv()
    pipe.send(count)


if __name__ == "__main__":
    sys.exit(main())
