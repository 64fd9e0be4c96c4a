"""How large a server must be: images a second, waiting times and memory by cores, as a table in Markdown.

    python benchmarks/serving/sizing.py [--minutes 4] [--cores 1 2 4] [--model BUNDLE] [--images FOLDER]

For each number of cores a server is started on as many and called twice: by so many callers at once that it
is never idle, then by one at a time. The callers run on the other cores; where there are none left they share
those of the server, which the table says. It takes about --minutes, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnxruntime
from common import Server, add_arguments, load_images, percentiles_ms, running_server
from load import run_clients

CALLERS_A_CORE, MOST_CALLERS = 16, 192  # fewer than may be admitted (queue_size)
_START_S = 15  # of each server, about
_COLUMNS = ("cores", "images/s", "p50", "p99", "p99, one caller", "memory")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--cores", type=int, nargs="+", help="default: 1, 2, 4, ... and all of this machine")
    add_arguments(parser)
    args = parser.parse_args()
    machine = sorted(os.sched_getaffinity(0))
    counts = args.cores or sorted({*(n for n in (1, 2, 4, 8, 16, 32) if n < len(machine)), len(machine)})
    if not 0 < min(counts) <= max(counts) <= len(machine):
        parser.error(f"this machine has {len(machine)} cores")
    seconds = max(5.0, (args.minutes * 60 / len(counts) - _START_S) / 2)
    images = load_images(args.images)
    rows, model = [], ""
    for count in counts:
        print(f"{count} of {len(machine)} cores, about {2 * seconds + _START_S:.0f} s", file=sys.stderr)
        server_cores, others = set(machine[:count]), set(machine[count:])
        flags = ("--decode-workers", str(count))
        with running_server(args, *flags, cores=server_cores) as server, on(others or server_cores):
            model = server.events["serving"]["model"]
            clients = min(CALLERS_A_CORE * count, MOST_CALLERS)
            asyncio.run(run_clients(server.address, images, clients, 2))
            waits, errors = asyncio.run(run_clients(server.address, images, clients, seconds))
            memory_mib = tree_mib(server)
            alone, more = asyncio.run(run_clients(server.address, images, 1, seconds))
            server.end()
        if errors or more:
            raise SystemExit(f"{len(errors) + len(more)} calls failed: {(errors + more)[0]}")
        busy, calm = percentiles_ms(waits), percentiles_ms(alone)
        shared = "" if others else ", shared with the callers"
        rate = len(waits) / seconds
        rows.append(
            f"| {count}{shared} | {rate:.1f} | {busy['p50']:.0f} ms | {busy['p99']:.0f} ms | "
            f"{calm['p99']:.0f} ms | {memory_mib:.0f} MiB |"
        )
    photo_kb = sum(map(len, images)) / len(images) / 1000
    print(f"`{model}`, {cpu_name()}, ONNX Runtime {onnxruntime.__version__}, photos of {photo_kb:.0f} KB:\n")
    print(f"| {' | '.join(_COLUMNS)} |")
    print("| --- " * len(_COLUMNS) + "|")
    print("\n".join(rows))
    return 0


@contextmanager
def on(cores: set[int]) -> Iterator[None]:
    """This process runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def tree_mib(server: Server) -> float:
    """Memory of the server and of its decoding processes, what they share counted once (PSS)."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    family = {server.process.pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    kib = 0
    for pid in family:
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        kib += int(found[1]) if found else 0
    return kib / 1024


def cpu_name() -> str:
    """The processor, as Linux calls it."""
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
