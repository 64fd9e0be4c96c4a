"""What a caption costs in time and memory, against words, beam, batch and the size of a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from captioner import CaptionOptions
from measures.bench import Bench, Table
from measures.command import captioner
from measures.photos import SIZES, photo_files, pixels, write_photos

WORDS = (2, 4, 6, 8, 10, 12)
BEAMS = (1, 2, 3, 5, 10)
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def measure(bench: Bench) -> list[Table]:
    quick = bench.quick
    return [
        Table("Cost against words, beam 3", _words(bench, WORDS[:2] if quick else WORDS)),
        Table(
            "Cost against the beam, batch 8",
            [_run(bench, "beam", beam, beam=beam, batch=8) for beam in (BEAMS[:1] if quick else BEAMS)],
        ),
        Table(
            "Cost against the batch, beam 3",
            [_run(bench, "batch", size, beam=3, batch=size) for size in (BATCHES[:1] if quick else BATCHES)],
        ),
        Table(
            "Cost against the size of a folder, photos of 224 x 224",
            [_folder(bench, count) for count in bench.folder_sizes],
        ),
    ]


def _words(bench: Bench, limits: Iterable[int]) -> list[dict[str, Any]]:
    model = bench.captioner()
    batch = pixels(model, size="500 x 375")
    rows = []
    for limit in limits:
        options = CaptionOptions(beam_size=3, max_words=limit)
        said = np.mean([len(caption.words) for caption in model.caption_pixels(batch, options)])
        one = bench.median_ms(lambda options=options: model.caption_pixels(batch[:1], options))
        all_ms = bench.median_ms(lambda options=options: model.caption_pixels(batch, options))
        rows.append(
            {
                "most words": limit,
                "words said": round(float(said), 1),
                "batch 1, ms": one,
                f"batch {len(batch)}, ms a photo": all_ms / len(batch),
            }
        )
    return rows


def _run(bench: Bench, name: str, value: int, *, beam: int, batch: int) -> dict[str, Any]:
    """One setting in a process of its own, so that its memory is known."""
    flags = ["--json", "--batch-sizes", str(batch), "--beam", str(beam), *bench.flags()]
    run = captioner("bench", *photo_files(bench.work), *flags, "--seconds", str(max(bench.seconds, 0.01)))
    [found] = json.loads(run.output)["batches"]
    ms = found["median_ms"] / batch
    return {name: value, "ms a photo": ms, "photos/s": 1000 / ms, "peak MB": round(run.peak_mb)}


def _folder(bench: Bench, count: int) -> dict[str, Any]:
    folder = write_photos(bench.work / f"folder of {count}", SIZES["224 x 224"], count)
    output = bench.work / f"{count}.jsonl"
    run = captioner("batch", folder, "-o", output, "--quiet", *bench.flags())
    again = captioner("batch", folder, "-o", output, "--quiet", *bench.flags())
    return {
        "photos": count,
        "seconds": run.seconds,
        "ms a photo": 1000 * run.seconds / count,
        "seconds when all are done": again.seconds,
        "peak MB": round(run.peak_mb),
    }
