"""`captioner serve` against the same model behind mosec and LitServe: open-loop arrivals over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.common import free_port

from measures.bench import Bench, Skip, Table
from measures.photos import SIZES, photo_files, photos

HERE = Path(__file__).parent
SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1)
"""Loads, as shares of what the model captions in a process of its own."""
MOST_P99_MS = 500
BATCH = 16


@dataclass(frozen=True)
class Place:
    """Where a server takes photos."""

    url: str
    multipart: bool = False


def measure(bench: Bench) -> list[Table]:
    seconds = 1.0 if bench.quick else max(10.0, 5 * bench.seconds)
    rates, rows = compare(bench, SHARES[:1] if bench.quick else SHARES, seconds)
    best = [{"server": name, f"photos/s at a p99 of {MOST_P99_MS} ms": rate} for name, rate in rates.items()]
    if bench.has("matplotlib", "the plot of latency against load"):
        _plot(rows, bench.work / "latency.png")
    return [Table("Servers at a bounded latency", best), Table("Latency against load", rows)]


def compare(
    bench: Bench, shares: Sequence[float], seconds: float
) -> tuple[dict[str, float | None], list[dict[str, Any]]]:
    """Photos a second that each server answers at a p99 of `MOST_P99_MS`, and every load that was offered:
    `shares` of what the model captions in this process, for `seconds` each."""
    if not bench.has("aiohttp", "servers"):
        raise Skip("aiohttp is not installed")
    alone = _in_process(bench)
    rows: list[dict[str, Any]] = []
    for name, serve in {"captioner serve": _ours, "mosec": _mosec, "LitServe": _litserve}.items():
        package = {"mosec": "mosec", "LitServe": "litserve"}.get(name)
        if package is None or bench.has(package, name):
            try:
                with serve(bench) as place:
                    for share in shares:
                        row = _load(bench, place, share * alone, seconds)
                        rows.append({"server": name, "share of the process alone": share, **row})
            except Skip as reason:
                bench.skip(name, str(reason))
    rates = {
        name: max((row["answered/s"] for row in rows if row["server"] == name and _holds(row)), default=None)
        for name in dict.fromkeys(row["server"] for row in rows)
    }
    return rates, rows


def _holds(row: dict[str, Any]) -> bool:
    return bool(row["p99 ms"] <= MOST_P99_MS and not row["failed"])


def _in_process(bench: Bench) -> float:
    """Photos a second."""
    captioner, files = bench.captioner(lanes=None), photos(SIZES["500 x 375"])
    many = [files[number % len(files)] for number in range(BATCH if bench.quick else 4 * BATCH)]
    return 1000 * len(many) / bench.median_ms(lambda: captioner.caption(many, batch_size=BATCH))


def _load(bench: Bench, place: Place, rate: float, seconds: float) -> dict[str, Any]:
    sent = [str(path) for path in photo_files(bench.work)]
    given = {"url": place.url, "multipart": place.multipart, "photos": sent}
    done = subprocess.run(
        [sys.executable, "-m", "measures.open_loop"],
        input=json.dumps(given | {"rate": rate, "seconds": seconds}),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parent,
    )
    return {"offered/s": rate, **json.loads(done.stdout)}


@contextmanager
def _ours(bench: Bench) -> Iterator[Place]:
    port = free_port()
    with bench.server("--http-port", str(port), "--max-batch-size", str(BATCH)):
        yield Place(f"http://127.0.0.1:{port}/v1/caption")


@contextmanager
def _mosec(bench: Bench) -> Iterator[Place]:
    port = free_port()
    with _other(bench, [str(HERE / "mosec_app.py"), "--port", str(port)], f"http://127.0.0.1:{port}/"):
        yield Place(f"http://127.0.0.1:{port}/inference")


@contextmanager
def _litserve(bench: Bench) -> Iterator[Place]:
    port = free_port()
    with _other(bench, [str(HERE / "litserve_app.py"), str(port)], f"http://127.0.0.1:{port}/health"):
        yield Place(f"http://127.0.0.1:{port}/predict", multipart=True)


@contextmanager
def _other(bench: Bench, command: list[str], health: str) -> Iterator[None]:
    """A server as a process, once it answers."""
    model = {"BENCHMARK_MODEL": str(bench.model.resolve())} if bench.model else {}
    log = (bench.work / f"{Path(command[0]).stem}.log").open("w")
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **model},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        limit = time.monotonic() + 120
        while not _answers(health):
            if process.poll() is not None or time.monotonic() > limit:
                last = Path(log.name).read_text().strip().rpartition("\n")[2]
                raise Skip(f"it does not serve: {last}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):  # LitServe leaves its workers behind
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log.close()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name in dict.fromkeys(row["server"] for row in rows):
        own = [row for row in rows if row["server"] == name]
        axes.plot([row["offered/s"] for row in own], [row["p99 ms"] for row in own], marker="o", label=name)
    axes.axhline(MOST_P99_MS, color="grey", linewidth=0.8)
    axes.set(xlabel="photos a second offered", ylabel="p99 of the latency, ms", yscale="log")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
