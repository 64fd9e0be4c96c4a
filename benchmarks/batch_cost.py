#!/usr/bin/env python3
"""What it costs to caption very many images on a cluster: a calculation from rates measured here.

    batch_cost.py PHOTOS [--device cuda] [--cores 16] [--hourly-price P] [--images 100000000]

Measures, on the photos given (a folder or an archive), what one core reads and decodes, what the model
captions, and what a batch of both makes, and prints a table for docs/cluster.md. A node is a machine like
this one unless --cores says that it has more cores to decode with. The price of an hour of a node is yours to
give, in any currency, with --price-note to say where and when you have it from.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from captioner import Captioner, CaptionOptions, iter_folder
from captioner.folder.open import open_sources

OPTIONS = CaptionOptions(attention=False)
PRICE_A_CORE_HOUR = 0.05
PRICE_NOTE = (
    "an assumption of November 2026: 0.05 an hour for each core, the order of list prices of general-purpose "
    "machines rented by the hour"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of a node of the cluster")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--images", type=float, default=1e8)
    parser.add_argument("--hourly-price", type=float, help="of a node (default: 0.05 a core)")
    parser.add_argument("--price-note", default="yours", help="where and when the price is from")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the model alone")
    args = parser.parse_args()
    captioner = Captioner.load(args.model, device=args.device)
    contents = read_some(args.photos, 256)
    started = time.process_time()
    pixels = np.stack([captioner.preprocess(content) for content in contents])
    decode_s = (time.process_time() - started) / len(contents)
    size_mb = sum(map(len, contents)) / len(contents) / 1e6
    model_rate = measure_model(captioner, pixels, args.batch_size, args.seconds)
    photos, batch_rate = measure_batch(captioner, args.photos, args.batch_size)
    decode_rate = args.cores / decode_s
    if args.cores == os.cpu_count():
        rate, how = batch_rate, "as measured together"
    elif captioner.device == "cpu":
        rate = 1 / (1 / decode_rate + os.cpu_count() / args.cores / model_rate)
        how = "cores share the decoding and the model"
    else:
        rate = min(model_rate, decode_rate)
        how = "held up by the model" if rate == model_rate else "held up by decoding"
    hours = args.images / rate / 3600
    price, note = args.hourly_price, args.price_note
    if price is None:
        price, note = PRICE_A_CORE_HOUR * args.cores, PRICE_NOTE
    rows = {
        "reading and decoding": f"{1e3 * decode_s:.1f} ms of one core for a photo of {size_mb:.2f} MB",
        f"on {args.cores} cores": f"{args.cores} / {decode_s:.4f} s = {decode_rate:.0f} images/s",
        f"the model alone on {captioner.device}": f"{model_rate:.1f} images/s",
        f"a batch of {photos} photos, both together": f"{batch_rate:.1f} images/s",
        "a node": f"{rate:.1f} images/s ({how})",
        f"{args.images:,.0f} images": f"{args.images:.0f} / {rate:.1f} / 3600 = {hours:,.0f} node hours",
        "on 100 nodes": f"{hours / 100:,.0f} hours",
        "cost": f"{hours:,.0f} x {price:g} = {hours * price:,.0f} (the price: {note})",
        "to read": f"{args.images * size_mb / 1e6:.1f} TB; {rate * size_mb:.1f} MB/s a node",
    }
    print(f"| with `{captioner.model}` | |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")


def read_some(photos: Path, most: int) -> list[bytes]:
    [source] = open_sources([photos])
    found = sorted(source.find(), key=lambda one: one.name)[:most]
    return [source.read(one.locator, 2**30)[0] for one in found]


def measure_model(captioner: Captioner, pixels: np.ndarray, batch_size: int, seconds: float) -> float:
    """Images a second."""
    starts = range(0, len(pixels), batch_size)
    captioner.caption_pixels(pixels[:batch_size], OPTIONS)
    started, done = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        for start in starts:
            batch = pixels[start : start + batch_size]
            captioner.caption_pixels(batch, OPTIONS)
            done += len(batch)
    return done / (time.monotonic() - started)


def measure_batch(captioner: Captioner, photos: Path, batch_size: int) -> tuple[int, float]:
    """How many photos there are, and images a second."""
    started = time.monotonic()
    results = iter_folder(photos, options=OPTIONS, captioner=captioner, batch_size=batch_size)
    count = sum(1 for _ in results)
    return count, count / (time.monotonic() - started)


if __name__ == "__main__":
    main()
