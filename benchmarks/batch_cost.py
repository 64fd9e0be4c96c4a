#!/usr/bin/env python3
"""What it costs to caption very many images on a cluster: a calculation from rates measured here.

    batch_cost.py PHOTOS [--markdown docs/cluster.md] [--device cuda] [--cores 16] [--hourly-price P]

Measures, on the photos given (a folder or an archive), how fast one core reads and decodes, how fast the
model captions, and how fast a batch does both. Prints the calculation as a table, or writes it between the
markers of a document. A node is a machine like this one unless --cores gives it another number of cores to
decode with. --hourly-price is the price of a node in any currency; --price-note says where it is from.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from measures import machine, markdown
from measures.bench import Table

from captioner import Captioner, CaptionOptions, iter_folder
from captioner.folder.sources.open import open_sources

OPTIONS = CaptionOptions(attention=False)
PRICE_A_CORE_HOUR = 0.05
PRICE_NOTE = "0.05 for each core, assumed; about a list price of November 2026"


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
    parser.add_argument("--price-note", default="yours", help="where the price is from, and when")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the model alone")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write between the markers of this file"
    )
    args = parser.parse_args()
    about = machine.describe()
    captioner = Captioner.load(args.model, device=args.device, lanes=None)
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
        "cost": f"{hours:,.0f} x {price:g} = {hours * price:,.0f} (price of an hour: {note})",
        "to read": f"{args.images * size_mb / 1e6:.1f} TB; {rate * size_mb:.1f} MB/s a node",
    }
    table = Table(
        "", [{"what": name, "figure": value} for name, value in rows.items()], f"`{captioner.model}`."
    )
    markdown.show(table, about, args.markdown, "cost")


def read_some(photos: Path, most: int) -> list[bytes]:
    with open_sources([photos]) as [source]:
        found = sorted(source.find(), key=lambda one: one.name)[:most]
        return [source.read(one.locator, 2**30)[0] for one in found]


def measure_model(captioner: Captioner, pixels: np.ndarray, batch_size: int, seconds: float) -> float:
    """Images a second, as many batches at once as the model takes."""
    batches = [pixels[start : start + batch_size] for start in range(0, len(pixels), batch_size)]

    def caption(batch: np.ndarray) -> int:
        return len(captioner.caption_pixels(batch, OPTIONS))

    caption(batches[0])
    started, done = time.monotonic(), 0
    with ThreadPoolExecutor(captioner.lanes) as lanes:
        while time.monotonic() - started < seconds:
            done += sum(lanes.map(caption, batches))
    return done / (time.monotonic() - started)


def measure_batch(captioner: Captioner, photos: Path, batch_size: int) -> tuple[int, float]:
    """How many photos there are, and images a second."""
    started = time.monotonic()
    results = iter_folder(photos, options=OPTIONS, captioner=captioner, batch_size=batch_size)
    count = sum(1 for _ in results)
    return count, count / (time.monotonic() - started)


if __name__ == "__main__":
    main()
