"""The targets of captioner: each row is a ratio to a reference that was measured in the same run.

Machines differ, and one machine differs from minute to minute: the ratio of two neighbouring measurements
says more than either. A row shows the median of the repeats, and the lowest and highest ratio.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any

from serving.common import run_clients

from captioner.cores import available_cores
from measures import pytorch, serving
from measures.bench import SEARCHES, Bench, Skip
from measures.command import Run, captioner
from measures.encoder import run_yardstick
from measures.photos import SIZES, photos, pixels, write_photos

CALLERS = 64
_STARTS = 7
_LARGE = 240
"""Photos of 12 megapixels: enough that the start of the process hardly counts."""

Rows = list[dict[str, Any]]


def folder(bench: Bench) -> Rows:
    """A folder by `captioner batch`, start of the process included, beside the bare encoder in float32."""
    count = 8 if bench.quick else 1_000
    place = write_photos(bench.work / "folder", SIZES["224 x 224"], count)
    settings = [
        (precision, lanes)
        for precision in bench.precisions()
        for lanes in (1, 2)
        if lanes <= (bench.threads or available_cores())
    ]
    runs: dict[tuple[str, int], list[Run]] = {setting: [] for setting in settings}
    alone = []
    for repeat in range(bench.repeats):
        alone.append(run_yardstick(bench)[32] * count / 1000)
        for (precision, lanes), found in runs.items():
            output = bench.work / f"folder-{precision}-{lanes}-{repeat}.jsonl"
            flags = ["--quiet", "--lanes", str(lanes), *bench.flags(precision)]
            found.append(captioner("batch", place, "-o", output, *flags))
    return [
        _row(
            f"{count:,} photos of 224 x 224 by `captioner batch`, {precision}, lanes: {lanes}",
            [run.seconds for run in found],
            alone,
            "s",
            "0.8 or more" if precision == "int8" else "",
            memory_mb=max(run.peak_mb for run in found),
        )
        for (precision, lanes), found in runs.items()
    ]


def photo(bench: Bench) -> Rows:
    """One photo at a time, JPEG included, beside the bare encoder at batch 1. Here less is better."""
    files = photos(SIZES["224 x 224"])
    targets = {"beam 3": "2.5 or less", "greedy": "1.8 or less"}
    times: dict[tuple[str, str], list[float]] = {
        (precision, search): [] for precision in bench.precisions() for search in targets
    }
    alone = []
    for _ in range(bench.repeats):
        alone.append(run_yardstick(bench)[1])
        for (precision, search), found in times.items():
            model, turn, options = bench.captioner(precision), cycle(files), SEARCHES[search]
            found.append(bench.median_ms(partial(_caption_next, model, turn, options)))
    return [
        _row(
            f"one photo, {search}, {precision}",
            found,
            alone,
            "ms",
            targets[search] if precision == "int8" else "",
            less=True,
        )
        for (precision, search), found in times.items()
    ]


def large(bench: Bench) -> Rows:
    """Photos of 12 megapixels by `captioner batch`, beside reading them at the size that is needed."""
    count = 4 if bench.quick else _LARGE
    place = write_photos(bench.work / "large", SIZES["12 megapixels"], count, 4)
    paths = sorted(place.rglob("*.jpg"))
    prepare = bench.captioner().preprocess
    ours, alone = [], []
    for repeat in range(bench.repeats):
        started = time.perf_counter()
        with ThreadPoolExecutor(bench.threads or available_cores()) as pool:
            list(pool.map(prepare, paths))
        alone.append(time.perf_counter() - started)
        output = bench.work / f"large-{repeat}.jsonl"
        ours.append(captioner("batch", place, "-o", output, "--quiet", *bench.flags()))
    what = f"{count} JPEG files of 12 megapixels by `captioner batch`"
    memory_mb = max(run.peak_mb for run in ours)
    return [_row(what, [run.seconds for run in ours], alone, "s", "0.6 or more", memory_mb=memory_mb)]


def callers(bench: Bench) -> Rows:
    """`captioner serve` with many callers, who are on the same cores, beside the model in this process."""
    model = bench.captioner(lanes=None)
    flags = ["--threads", str(bench.threads)] if bench.threads else []
    seconds = 0.5 if bench.quick else 8.0
    rows = []
    for size in ("224 x 224", "500 x 375"):
        files = photos(SIZES[size])
        many = [files[number % len(files)] for number in range(8 if bench.quick else 256)]
        ours, alone, memory_mb = [], [], 0.0
        for _ in range(bench.repeats):
            alone.append(bench.median_ms(partial(model.caption, many)) / len(many))
            with bench.server(*flags) as server:
                asyncio.run(run_clients(server.address, files, CALLERS, seconds / 4))
                started = time.perf_counter()
                waits, errors = asyncio.run(run_clients(server.address, files, CALLERS, seconds))
                ours.append(1000 * (time.perf_counter() - started) / max(1, len(waits)))
                memory_mb = max(memory_mb, server.peak_mib())
            if errors:
                raise Skip(f"{len(errors)} calls failed: {errors[0]}")
        what = f"`captioner serve`, {CALLERS} callers, photos of {size}, a photo"
        rows.append(_row(what, ours, alone, "ms", "0.85 or more", memory_mb=memory_mb))
    return rows


def eager(bench: Bench) -> Rows:
    """The same weights in PyTorch, with the same search, without reading photos. Here more is better."""
    ours, theirs = pytorch.ours(bench, "auto"), pytorch.theirs(bench, compiled=False)
    rows = []
    for size, target in ((32, "5 or more"), (1, "4 or more")):
        part = pixels(bench.captioner(), 2 if bench.quick and size > 1 else size)
        found, beside = [], []
        for _ in range(bench.repeats):
            found.append(bench.median_ms(partial(ours, part)) / len(part))
            beside.append(bench.median_ms(partial(theirs, part)) / len(part))
        rows.append(_row(f"PyTorch, eager, batch {size}, a photo", found, beside, "ms", target))
    return rows


def start(bench: Bench) -> Rows:
    """A process that captions one photo, with the graphs in the user's cache."""
    path = bench.work / "start.jpg"
    path.write_bytes(photos(SIZES["500 x 375"], 1)[0])
    empty = {"XDG_CACHE_HOME": str(bench.work / "empty-cache")}
    first = captioner("caption", path, *bench.flags(), environment=empty)
    captioner("caption", path, *bench.flags())
    others = [captioner("caption", path, *bench.flags()) for _ in range(1 if bench.quick else _STARTS)]
    seconds = [run.seconds for run in others]
    return [
        {
            "what": "`captioner caption photo.jpg`, a process",
            "captioner": f"{median(seconds):.2f} s",
            "compared with": f"with an empty cache: {first.seconds:.2f} s",
            "range": f"{min(seconds):.2f} to {max(seconds):.2f} s",
            "target": "0.6 s, 200 MB or less",
            "peak MB": round(max(run.peak_mb for run in others)),
        }
    ]


def servers(bench: Bench) -> Rows:
    """Photos a second at a bounded latency, beside the same model behind other servers."""
    seconds = 1.0 if bench.quick else 8.0
    rates, _ = serving.compare(bench, serving.SHARES[:1] if bench.quick else (0.5, 0.7, 0.85, 1.0), seconds)
    ours = rates.pop("captioner serve")
    rows = []
    for name, rate in rates.items():
        rows.append(
            {
                "what": f"{name}, photos a second at a p99 of {serving.MOST_P99_MS} ms",
                "captioner": _short(ours) if ours else "none",
                "compared with": _short(rate) if rate else "none",
                "ratio": ours and rate and round(ours / rate, 2),
                "range": "one",
            }
        )
    return rows


ROWS = {
    "folder": folder,
    "photo": photo,
    "large": large,
    "callers": callers,
    "eager": eager,
    "start": start,
    "servers": servers,
}


def _caption_next(model: Any, turn: Any, options: Any) -> None:
    model.caption(next(turn), options)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _row(
    what: str,
    ours: Sequence[float],
    beside: Sequence[float],
    unit: str,
    target: str,
    *,
    less: bool = False,
    memory_mb: float | None = None,
) -> dict[str, Any]:
    """Ours and what was measured beside it, times of each repeat in `unit`. The ratio says how many times as
    fast we are, or with `less` how many times as long we take."""
    pairs = zip(ours, beside, strict=True)
    ratios = [one / other if less else other / one for one, other in pairs]
    return {
        "what": what,
        "captioner": f"{_short(median(ours))} {unit}",
        "compared with": f"{_short(median(beside))} {unit}",
        "ratio": round(median(ratios), 2),
        "range": f"{min(ratios):.2f} to {max(ratios):.2f}",
        "target": target,
        "peak MB": memory_mb and round(memory_mb),
    }
