"""`captioner batch` on folders, the start of the process included, and a cold `captioner caption`."""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from measures.bench import Bench, Table, ratio
from measures.command import captioner
from measures.encoder import yardstick_ms
from measures.photos import SIZES, photos, write_photos

PHOTOS = {"224 x 224": 1_000, "500 x 375": 1_000, "12 megapixels": 120}
_STARTS = 7


def measure(bench: Bench) -> list[Table]:
    reference = yardstick_ms(bench)
    rows: list[dict[str, Any]] = []
    for size, count in list(PHOTOS.items())[: 1 if bench.quick else None]:
        count = 8 if bench.quick else count
        folder = write_photos(bench.work / f"photos of {size}", SIZES[size], count, min(count, 16))
        output = bench.work / f"{size}.jsonl"
        run = captioner("batch", folder, "-o", output, "--quiet", *bench.flags())
        rate, decoding = count / run.seconds, _decode_rate(bench, size)
        row = {"photo": size, "photos": count, "seconds": round(run.seconds, 2), "photos/s": round(rate, 1)}
        row |= {"peak MB": round(run.peak_mb), "decoding alone, photos/s": round(decoding, 1)}
        row["share of decoding alone"] = round(rate / decoding, 2)
        if reference:
            row["ratio"] = ratio(reference[32] * count / 1000, run.seconds)
        rows.append(row)
    note = "Decoding alone: reading and scaling to the model's input, a thread for each core."
    return [Table("`captioner batch`, with the start of the process", rows, note), _starts(bench)]


def _decode_rate(bench: Bench, size: str) -> float:
    """Photos a second."""
    prepare = bench.captioner().preprocess
    files = photos(SIZES[size], 2 if bench.quick else 16)
    with ThreadPoolExecutor(bench.threads or os.cpu_count()) as pool:
        list(pool.map(prepare, files))
        started, done = time.perf_counter(), 0
        while done == 0 or time.perf_counter() - started < bench.seconds:
            done += len(list(pool.map(prepare, files)))
        return done / (time.perf_counter() - started)


def _starts(bench: Bench) -> Table:
    photo = bench.work / "photo.jpg"
    photo.write_bytes(photos(SIZES["500 x 375"], 1)[0])
    cache = {"XDG_CACHE_HOME": str(bench.work / "cache")}
    times = []
    for _ in range(2 if bench.quick else 1 + _STARTS):
        times.append(captioner("caption", photo, *bench.flags(), environment=cache))
    first, *others = times
    rows = [
        {"start": "the first", "seconds": round(first.seconds, 2), "peak MB": round(first.peak_mb)},
        {
            "start": "later ones, median",
            "seconds": round(statistics.median(one.seconds for one in others), 2),
            "peak MB": round(statistics.median(one.peak_mb for one in others)),
        },
    ]
    return Table("`captioner caption photo.jpg`, a process each", rows)
