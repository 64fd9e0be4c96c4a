"""The encoder alone in each precision, beside the yardstick: the bare EfficientNet in float32."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

from measures.bench import Bench, Skip, Table, ratio
from measures.photos import pixels

BATCHES = (1, 32)


def yardstick_ms(bench: Bench) -> dict[int, float]:
    """Milliseconds an image by batch size, measured once; empty where there is no yardstick."""
    if bench.yardstick is None:
        bench.skip("ratios to the yardstick", "no --yardstick was given")
        return {}
    return _once(bench.yardstick)


def run_yardstick(bench: Bench) -> dict[int, float]:
    """The same, measured now. Raises `Skip` where there is no yardstick."""
    if bench.yardstick is None:
        raise Skip("no --yardstick was given")
    return _run(bench.yardstick)


@cache
def _once(script: Path) -> dict[int, float]:
    return _run(script)


def _run(script: Path) -> dict[int, float]:
    done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    found = re.findall(r"^batch (\d+): ([\d.]+)", done.stdout, re.MULTILINE)
    return {int(batch): float(ms) for batch, ms in found}


def measure(bench: Bench) -> list[Table]:
    reference = yardstick_ms(bench)
    rows: list[dict[str, Any]] = []
    if reference:
        rows.append(_row("yardstick, float32", reference, reference))
    for precision in bench.precisions():
        captioner = bench.captioner(precision)
        times = {
            batch: bench.median_ms(partial(captioner.encode, pixels(captioner, batch))) / batch
            for batch in BATCHES
        }
        rows.append(_row(f"encoder, {precision}", times, reference))
    return [Table("Encoder alone, ms an image", rows)]


def _row(name: str, times: dict[int, float], reference: dict[int, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"graph": name}
    for batch in BATCHES:
        row[f"batch {batch}"] = round(times[batch], 3)
    for batch in BATCHES if reference else ():
        row[f"ratio, batch {batch}"] = ratio(reference[batch], times[batch])
    return row
