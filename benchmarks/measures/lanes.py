"""How many batches at once suit this machine: a folder, many callers and a single one, by lanes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from serving.common import percentiles_ms, run_clients

from captioner.cores import available_cores
from captioner.model.runtime import default_lanes
from measures.bench import Bench, Table
from measures.command import captioner
from measures.photos import SIZES, photos, write_photos

PHOTOS = 1_000
CALLERS = 64


def measure(bench: Bench) -> list[Table]:
    cores = bench.threads or available_cores()
    count = 8 if bench.quick else PHOTOS
    folder = write_photos(bench.work / "photos for lanes", SIZES["500 x 375"], count)
    rows = []
    for lanes in [1] if bench.quick else sorted({1, 2, 3, 4, 8, cores // 2, cores}):
        if not 1 <= lanes <= cores:
            continue
        row: dict[str, Any] = {"lanes": lanes, "threads of each": max(1, cores // lanes)}
        output = bench.work / f"lanes-{lanes}.jsonl"
        run = captioner("batch", folder, "-o", output, "--quiet", "--lanes", str(lanes), *bench.flags())
        row |= {"batch: photos/s": count / run.seconds, "peak MB": round(run.peak_mb)}
        rows.append(row | _server(bench, lanes))
    note = f"The default here is {default_lanes(cores)}; `batch` includes the start of the process."
    return [Table("Batches at once (`--lanes`), photos of 500 x 375", rows, note)]


def _server(bench: Bench, lanes: int) -> dict[str, Any]:
    """Measure `captioner serve`: photos a second and latency with many callers, latency with one."""
    files = photos(SIZES["500 x 375"])
    flags = ["--lanes", str(lanes), *(["--threads", str(bench.threads)] if bench.threads else [])]
    seconds = 0.5 if bench.quick else max(10.0, 5 * bench.seconds)
    with bench.server(*flags) as server:
        asyncio.run(run_clients(server.address, files, 4, seconds / 10))
        started = time.perf_counter()
        waits, errors = asyncio.run(run_clients(server.address, files, CALLERS, seconds))
        rate = len(waits) / (time.perf_counter() - started)
        alone, more = asyncio.run(run_clients(server.address, files, 1, seconds / 2))
    return {
        f"{CALLERS} callers: photos/s": rate,
        "p99 ms": percentiles_ms(waits)["p99"],
        "one caller: p50 ms": percentiles_ms(alone)["p50"],
        "errors": len(errors) + len(more),
    }
