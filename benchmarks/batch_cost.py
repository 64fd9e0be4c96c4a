#!/usr/bin/env python3
"""What it costs to caption very many images on a cluster: a calculation from rates measured here.

    batch_cost.py PHOTOS [--device cuda] [--cores 16] [--hourly-price P] [--images 100000000]

Measures, on the photos given, what one core reads and decodes and what one model captions, then writes out
the calculation. The price of an hour of such a machine is yours to give, in any currency.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

from captioner import Captioner, CaptionOptions
from captioner.folder.sources import FolderSource


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of a node of the cluster")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--images", type=float, default=1e8)
    parser.add_argument("--hourly-price", type=float, help="of a node")
    args = parser.parse_args()
    captioner = Captioner.load(args.model, device=args.device)
    paths = [args.photos / found.name for found in FolderSource(args.photos).find()][:256]
    started = time.process_time()
    pixels = np.stack([captioner.preprocess(path) for path in paths])
    decode_s = (time.process_time() - started) / len(paths)
    size_mb = sum(path.stat().st_size for path in paths) / len(paths) / 1e6
    batch = pixels[np.arange(args.batch_size) % len(pixels)]
    options = CaptionOptions(attention=False)
    captioner.caption_pixels(batch, options)
    started = time.perf_counter()
    for _ in range(10):
        captioner.caption_pixels(batch, options)
    model_rate = 10 * len(batch) / (time.perf_counter() - started)
    decode_rate = args.cores / decode_s
    rate = min(model_rate, decode_rate)
    hours = args.images / rate / 3600
    print(f"reading and decoding   {1e3 * decode_s:.1f} ms of one core an image of {size_mb:.2f} MB")
    print(f"  on {args.cores} cores          {decode_rate:.0f} images/s")
    print(f"model on {captioner.device:<14}{model_rate:.0f} images/s")
    slower = "the model" if rate == model_rate else "decoding"
    print(f"a node                 {rate:.0f} images/s, held up by {slower}")
    print(f"{args.images:.0f} images        {args.images:.0f} / {rate:.0f} / 3600 = {hours:.0f} node hours")
    print(f"to read                {args.images * size_mb / 1e6:.1f} TB, {rate * size_mb:.0f} MB/s a node")
    if args.hourly_price is not None:
        print(f"cost                   {hours:.0f} x {args.hourly_price:g} = {hours * args.hourly_price:.0f}")


if __name__ == "__main__":
    main()
