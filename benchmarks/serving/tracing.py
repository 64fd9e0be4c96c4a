"""What traces cost: processor time of the server for an image, without them and with every call recorded.

    tracing.py [--markdown docs/operations.md] [--rounds 3] [--seconds 12] [--model BUNDLE] [--images FOLDER]

Rounds without and with traces take turns, about two minutes in all. A collector in a process of its own takes
the spans and drops them. The exit status is 1 if traces cost more than 2%.
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

from common import add_arguments, load_images, percentiles_ms, run_clients, running_server
from measures import machine, markdown
from measures.bench import Table

MOST_SHARE = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12, help="of each round")
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
    traced = ("--trace-endpoint", f"http://127.0.0.1:{ours.recv()}")
    rounds: dict[str, list[dict[str, Any]]] = {"no": [], "every call": []}
    for number in range(args.rounds):
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
        rounds["no"].append(measure(args, images))
        rounds["every call"].append(measure(args, images, *traced))
    ours.send(None)
    spans = ours.recv()
    rows = [{"traces": name, **middle(some)} for name, some in rounds.items()]
    off_ms, on_ms = (row["processor time an image, ms"] for row in rows)
    share = on_ms / off_ms - 1
    images_traced = sum(one["images"] for one in rounds["every call"])
    note = (
        f"Traces cost {share:.1%} of the processor time, {spans / images_traced:.1f} spans an image. Medians "
        f"of {args.rounds} rounds of {args.seconds:g} s, {args.clients} callers."
    )
    markdown.show(Table("", rows, note), about, args.markdown, "tracing")
    return 0 if share <= MOST_SHARE else 1


def middle(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """The row of some rounds."""
    return {
        name: statistics.median(one[name] for one in rounds)
        for name in ("processor time an image, ms", "p50, ms", "p99, ms")
    }


def measure(args: argparse.Namespace, images: list[bytes], *flags: str) -> dict[str, Any]:
    """A round on a server of its own."""
    with running_server(args, *flags) as server:
        first, _ = asyncio.run(run_clients(server.address, images, args.clients, 2))
        before_s = server.cpu_s()
        waits, errors = asyncio.run(run_clients(server.address, images, args.clients, args.seconds))
        cpu_s = server.cpu_s() - before_s
        server.end()
    if errors:
        raise SystemExit(f"{len(errors)} calls failed: {errors[0]}")
    times = percentiles_ms(waits)
    return {
        "images": len(first) + len(waits),  # of which spans were sent
        "processor time an image, ms": round(1000 * cpu_s / len(waits), 2),
        "p50, ms": times["p50"],
        "p99, ms": times["p99"],
    }


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
