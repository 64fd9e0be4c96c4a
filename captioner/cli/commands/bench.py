"""`captioner bench`: measure the speed of a model on this machine."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.caption_options import add_search_arguments, caption_options
from captioner.cli.arguments.model import LocalModel, add_local_arguments, local_model
from captioner.cli.arguments.values import named
from captioner.errors import OptionsError
from captioner.images.urls import is_url
from captioner.printable import printable
from captioner.readable_json import dump_json

if TYPE_CHECKING:
    from captioner.captioner import Captioner
    from captioner.options import CaptionOptions

BATCH_SIZES = (1, 8, 32)
_MOST_PHOTOS, _MOST_SECONDS = 1024, 3600


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure the speed of a model on this machine",
        description="Time loading, and captioning at several batch sizes (without reading the images).",
    )
    parser.add_argument("images", nargs="*", type=named, metavar="IMAGE", help="photos (default: noise)")
    parser.add_argument(
        "--batch-sizes", type=int, nargs="+", default=list(BATCH_SIZES), metavar="N", help="default: 1 8 32"
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="spent on each batch size (3)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the figures")
    parser.add_argument("--server", help=argparse.SUPPRESS)  # is rejected with the reason
    add_search_arguments(parser)
    add_local_arguments(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    model: LocalModel
    options: CaptionOptions
    images: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    seconds: float
    as_json: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        if args.server:
            raise OptionsError("--server: bench measures a model on this machine")
        if urls := list(filter(is_url, args.images)):
            raise OptionsError(f"{urls[0]}: bench reads files, and no URLs", "images")
        if not all(1 <= size <= _MOST_PHOTOS for size in args.batch_sizes):
            raise OptionsError(f"--batch-sizes must be from 1 to {_MOST_PHOTOS}")
        if not 0 < args.seconds <= _MOST_SECONDS:
            raise OptionsError(f"--seconds must be above 0 and up to {_MOST_SECONDS}, got {args.seconds}")
        return cls(
            model=local_model(args),
            options=caption_options(args),
            images=tuple(args.images),
            batch_sizes=tuple(args.batch_sizes),
            seconds=args.seconds,
            as_json=args.json,
        )


def run(args: argparse.Namespace) -> int:
    return bench(Request.read(args))


def bench(request: Request) -> int:
    """Measure, and print the figures; the exit status."""
    started = time.perf_counter()
    captioner = request.model.load()
    record: dict[str, Any] = {
        "model": captioner.model,
        "provider": captioner.provider,
        "precision": captioner.precision,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_ms": round(1e3 * (time.perf_counter() - started), 1),
    }
    record["beam_size"] = request.options.resolve(captioner.defaults).beam_size
    record["batches"] = [
        _measure(captioner, request.images, size, request.seconds, request.options)
        for size in request.batch_sizes
    ]
    if request.as_json:
        print(dump_json(record))
        return 0
    for name in ("model", "provider", "precision", "machine", "load_ms", "beam_size"):
        print(f"{name:<10} {printable(str(record[name]))}")
    print(f"{'batch':>5} {'median ms':>10} {'95% ms':>10} {'images/s':>10}")
    for row in record["batches"]:
        print(f"{row['batch']:>5} {row['median_ms']:>10} {row['p95_ms']:>10} {row['images_per_s']:>10}")
    return 0


def _measure(
    captioner: Captioner, images: Sequence[str], batch: int, seconds: float, options: CaptionOptions
) -> dict[str, Any]:
    import numpy as np
    from PIL import Image

    from captioner.captioner import preprocess_all

    size = captioner.bundle.image_size
    noise = np.random.default_rng(0).integers(0, 256, (0 if images else batch, size, size, 3), dtype=np.uint8)
    pool = preprocess_all(captioner.preprocess, images or map(Image.fromarray, noise))
    pixels = pool[np.arange(batch) % len(pool)]
    captioner.caption_pixels(pixels, options)  # the first call of a shape also plans memory
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        captioner.caption_pixels(pixels, options)
        times.append(time.perf_counter() - start)
    median = float(np.median(times))
    return {
        "batch": batch,
        "median_ms": round(1e3 * median, 2),
        "p95_ms": round(1e3 * float(np.percentile(times, 95)), 2),
        "images_per_s": round(batch / median, 1),
    }
