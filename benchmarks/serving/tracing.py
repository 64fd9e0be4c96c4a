"""What traces cost: processor time of the server for an image, without them and with every call recorded.

    python benchmarks/serving/tracing.py [--rounds 3] [--seconds 20] [--model BUNDLE] [--images FOLDER]

Rounds without and with traces take turns. A collector in a process of its own takes the spans and drops them.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from common import add_arguments, load_images, percentiles_ms, report, running_server
from load import run_clients

MOST_SHARE = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of each round")
    add_arguments(parser)
    args = parser.parse_args()
    images = load_images(args.images)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    collector = context.Process(target=collect, args=(theirs,), daemon=True)
    collector.start()
    traced = ("--trace-endpoint", f"http://127.0.0.1:{ours.recv()}")
    rounds: dict[str, list[dict[str, Any]]] = {"off": [], "on": []}
    for _ in range(args.rounds):
        rounds["off"].append(measure(args, images))
        rounds["on"].append(measure(args, images, *traced))
    ours.send(None)
    spans = ours.recv()
    cpu_ms = {name: statistics.median(one["cpu_ms"] for one in some) for name, some in rounds.items()}
    share = cpu_ms["on"] / cpu_ms["off"] - 1
    result = {
        "cpu_ms_an_image": {name: round(value, 3) for name, value in cpu_ms.items()},
        "cost": round(share, 4),
        "spans": spans,
        "rounds": rounds,
    }
    errors = sum(one["errors"] for some in rounds.values() for one in some)
    return report(result, {"no error": not errors, f"at most {MOST_SHARE:.0%}": share <= MOST_SHARE})


def measure(args: argparse.Namespace, images: list[bytes], *flags: str) -> dict[str, Any]:
    """A round on a server of its own."""
    with running_server(args, *flags) as server:
        asyncio.run(run_clients(server.address, images, args.clients, 2))
        before_s = server.cpu_s()
        waits, errors = asyncio.run(run_clients(server.address, images, args.clients, args.seconds))
        cpu_s = server.cpu_s() - before_s
        server.end()
    return {
        "images": len(waits),
        "errors": len(errors),
        "cpu_ms": 1000 * cpu_s / len(waits),
        "latency_ms": percentiles_ms(waits),
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
