#!/usr/bin/env python3
"""What a batch costs beside the model: its rate over many tiny images against that of the model alone, and
how its memory grows.

    batch_overhead.py [--images 20000] [--model BUNDLE] [--device cpu] [--batch-size 32]

Prints one JSON object, and a line for docs/batch.md. The model's rate is measured in this process on arrays,
before and after the batch. Memory is flat when it grows by less than a tenth after the first tenth of the
images. The exit status is 1 when the ratio is below 0.85 or the memory is not flat.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from captioner import Captioner, CaptionOptions, iter_folder

OPTIONS = CaptionOptions(attention=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each measure of the model alone")
    args = parser.parse_args()
    captioner = Captioner.load(args.model, device=args.device, threads=args.threads)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "images")
        make_images(root, args.images)
        before = model_rate(captioner, root, args.batch_size, args.seconds)
        started, memory = time.monotonic(), []
        results = iter_folder(
            root, Path(folder, "out.jsonl"), OPTIONS, captioner=captioner, batch_size=args.batch_size
        )
        for number, _ in enumerate(results):
            if (number + 1) % max(1, args.images // 20) == 0:
                memory.append(resident_mb())
        rate = args.images / (time.monotonic() - started)
        after = model_rate(captioner, root, args.batch_size, args.seconds)
    model = (before + after) / 2
    report = {
        "images": args.images,
        "device": captioner.device,
        "model_images_per_s": [round(before, 1), round(after, 1)],
        "batch_images_per_s": round(rate, 1),
        "ratio": round(rate / model, 3),
        "memory_mb_at_each_twentieth": memory,
    }
    growth = memory[-1] / memory[len(memory) // 10] - 1
    ratio = rate / model
    print(json.dumps(report, indent=2))
    print(
        f"{args.images} images of 32 x 32 pixels on {captioner.device}: {rate:.1f} images/s, {ratio:.2f} of "
        f"the model's own {model:.1f}; {memory[-1]:.0f} MB resident at the end, {growth:+.1%} since the "
        "first tenth"
    )
    sys.exit(ratio < 0.85 or growth > 0.1)


def make_images(root: Path, count: int) -> None:
    random = np.random.default_rng(0)
    for number in range(count):
        path = root / f"{number // 1000:03}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)


def model_rate(captioner: Captioner, root: Path, batch_size: int, seconds: float) -> float:
    """Images a second of the model alone, on other images of the same kind each time."""
    files = sorted(root.rglob("*.jpg"))[: 8 * batch_size]
    pixels = np.stack([captioner.preprocess(file) for file in files])
    batches = [pixels[start : start + batch_size] for start in range(0, len(pixels), batch_size)]
    captioner.caption_pixels(batches[0], OPTIONS)
    started, done = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        for batch in batches:
            captioner.caption_pixels(batch, OPTIONS)
            done += len(batch)
    return done / (time.monotonic() - started)


def resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024, 1)
    return float("nan")


if __name__ == "__main__":
    main()
