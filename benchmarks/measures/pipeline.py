"""From the bytes of a JPEG to its caption, in this process."""

from __future__ import annotations

from typing import Any

from measures.bench import SEARCHES, Bench, Table, ratio
from measures.encoder import yardstick_ms
from measures.photos import SIZES, photos

BATCHES = (1, 8, 32)
_BATCHES_AT_ONCE = 4
"""Batches of one call, so that photos are decoded while others are captioned."""


def measure(bench: Bench) -> list[Table]:
    reference = yardstick_ms(bench)
    rows: list[dict[str, Any]] = []
    for precision in bench.precisions():
        for size in SIZES:
            for search in SEARCHES:
                for batch in BATCHES[:1] if bench.quick else BATCHES:
                    ms = _photo_ms(bench, precision, size, search, batch)
                    row = {"photo": size, "search": search, "precision": precision, "batch": batch}
                    row |= {"ms a photo": round(ms, 2), "photos/s": round(1000 / ms, 1)}
                    if reference:
                        row["ratio"] = ratio(reference[1 if batch == 1 else 32], ms)
                    rows.append(row)
    note = "The ratio is to the yardstick at batch 1 for single photos, at batch 32 for others."
    return [Table("From JPEG bytes to captions", rows, note if reference else "")]


def _photo_ms(bench: Bench, precision: str, size: str, search: str, batch: int) -> float:
    captioner = bench.captioner(precision, lanes=1 if batch == 1 else None)
    options = SEARCHES[search]
    files = photos(SIZES[size], 1 if bench.quick else 8)
    if batch == 1:
        turn = iter(range(10**9))
        return bench.median_ms(lambda: captioner.caption(files[next(turn) % len(files)], options))
    many = [files[number % len(files)] for number in range(_BATCHES_AT_ONCE * batch)]
    return bench.median_ms(lambda: captioner.caption(many, options, batch_size=batch)) / len(many)
