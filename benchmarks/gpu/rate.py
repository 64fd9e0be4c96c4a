"""How many photos a second a server captions in time, if they arrive whether or not others are answered."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from measures.bench import Bench, Table
from measures.photos import photo_files

P99_MS = 50.0
FIRST = 250.0
"""Photos a second at first: twice as many while callers are answered in time, then between the two."""
TRIES = 8
SECONDS = 3.0
"""How long each rate is measured; the senders get one second more to start."""


def rate(bench: Bench) -> tuple[list[Table], dict[str, bool]]:
    """The highest rate at which 99 of 100 callers wait for at most `P99_MS`."""
    paths = [str(path) for path in photo_files(bench.work)]
    rows: list[dict[str, Any]] = []
    held, failed = 0.0, math.inf
    first, tries, seconds = (2.0, 1, 1.0) if bench.quick else (FIRST, TRIES, SECONDS)
    with bench.server("--max-batch-size", "64") as server:
        offer(server.address, paths, first, 1.0)  # the first calls load what is needed
        offered = first
        for _ in range(tries):
            rows.append(row := offer(server.address, paths, offered, seconds))
            if row["p99 ms"] <= P99_MS and not row["failed"]:
                held = offered
            else:
                failed = offered
            offered = 2 * held if failed == math.inf else math.sqrt((held or failed / 16) * failed)
        server.end()
    note = (
        f"Photos are sent at random times, from up to {senders()} processes on the server's own cores; the"
        f" p99 is that of the slowest. The highest rate with a p99 of at most {P99_MS:.0f} ms: {held:.0f}"
        " photos/s."
    )
    return [Table("Photos that arrive by themselves, over gRPC", rows, note)], {}


def offer(address: str, paths: list[str], offered: float, seconds: float) -> dict[str, Any]:
    """What so many photos a second find."""
    count = min(senders(), max(1, round(offered / 50)))
    started = []
    for seed in range(count):
        process = subprocess.Popen(
            [sys.executable, "-m", "measures.open_loop"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert process.stdin
        given = {"address": address, "photos": paths, "seed": seed, "rate": offered / count}
        process.stdin.write(json.dumps(given | {"seconds": seconds}))
        process.stdin.close()
        started.append(process)
    found = [json.load(process.stdout) for process in started if process.stdout]
    for process in started:
        process.wait()
    row: dict[str, Any] = {"offered/s": offered, "answered/s": sum(one["answered/s"] for one in found)}
    row |= {name: max(one[name] for one in found) for name in ("p50 ms", "p99 ms")}
    return row | {
        "failed": sum(one["failed"] for one in found),
        "first failure": next((one["first failure"] for one in found if one["first failure"]), ""),
    }


def senders() -> int:
    """A process can send about a thousand calls a second."""
    return max(1, min(4, (os.cpu_count() or 1) // 4))
