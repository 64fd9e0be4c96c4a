"""How large a server must be: images a second, waiting times and memory by cores, as a table in Markdown.

    sizing.py [--markdown docs/operations.md] [--minutes 2] [--cores 1 2 4] [--model BUNDLE] [--images FOLDER]

For each number of cores a server is started on as many and called twice: by so many callers at once that it
is never idle, then by one at a time. The callers run on the other cores; where there are none left they share
those of the server, which the table says. It takes about --minutes, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from common import add_arguments, load_images, percentiles_ms, pinned, run_clients, running_server
from measures import machine, markdown
from measures.bench import Table

CALLERS_A_CORE, MOST_CALLERS = 16, 192  # fewer than may be admitted (queue_size)
_START_S = 15  # of each server, about


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--cores", type=int, nargs="+", help="default: 1, 2, 4, ... and all of this machine")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write between the markers of this document"
    )
    add_arguments(parser)
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    counts = args.cores or sorted({*(n for n in (1, 2, 4, 8, 16, 32) if n < len(cores)), len(cores)})
    if not 0 < min(counts) <= max(counts) <= len(cores):
        parser.error(f"this machine has {len(cores)} cores")
    seconds = max(1.0, (args.minutes * 60 / len(counts) - _START_S) / 2)
    images = load_images(args.images)
    about = machine.describe()
    rows, model = [], ""
    for count in counts:
        print(f"{count} of {len(cores)} cores, about {2 * seconds + _START_S:.0f} s", file=sys.stderr)
        model, row = measure(args, images, set(cores[:count]), set(cores[count:]), seconds)
        rows.append(row)
    photo_kb = sum(map(len, images)) / len(images) / 1000
    markdown.show(Table("", rows, f"`{model}`, photos of {photo_kb:.0f} KB."), about, args.markdown, "sizing")
    return 0


def measure(
    args: argparse.Namespace, images: list[bytes], cores: set[int], others: set[int], seconds: float
) -> tuple[str, dict[str, Any]]:
    """The model's name and the row of a server on some cores, with its callers on others."""
    flags = ("--decode-workers", str(len(cores)))
    with running_server(args, *flags, cores=cores) as server, pinned(others or cores):
        clients = min(CALLERS_A_CORE * len(cores), MOST_CALLERS)
        asyncio.run(run_clients(server.address, images, clients, 2))
        waits, errors = asyncio.run(run_clients(server.address, images, clients, seconds))
        memory_mib = server.memory_mib()
        alone, more = asyncio.run(run_clients(server.address, images, 1, seconds))
        server.end()
    if errors or more:
        raise SystemExit(f"{len(errors) + len(more)} calls failed: {(errors + more)[0]}")
    busy, calm = percentiles_ms(waits), percentiles_ms(alone)
    return server.events["serving"]["model"], {
        "cores": f"{len(cores)}{'' if others else ', shared with the callers'}",
        "images/s": round(len(waits) / seconds, 1),
        "busy: p50, ms": round(busy["p50"]),
        "busy: p99, ms": round(busy["p99"]),
        "one caller: p50, ms": round(calm["p50"]),
        "one caller: p99, ms": round(calm["p99"]),
        "memory, MiB": round(memory_mib),
    }


if __name__ == "__main__":
    sys.exit(main())
