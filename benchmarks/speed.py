#!/usr/bin/env python3
"""How fast captioning is on this machine, and beside what: one command, Markdown tables and JSON.

    speed.py --yardstick SCRIPT [--json FILE] [--markdown docs/performance.md] [--only SECTION ...]
    speed.py --results FILE --markdown docs/performance.md      # write what was measured before
    speed.py --quick                                            # run everything once; measures nothing

Run it on a machine that does nothing else: it warns where that is not so. SCRIPT prints the milliseconds an
image of the bare encoder in ONNX Runtime float32 ("batch 32: 10.6 s for 1,000 images"); ratios are to it.
What is not installed (transformers, mosec, LitServe, PyTorch) is left out, and the tables say so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measures import machine, markdown
from measures.bench import Bench, Skip

SECTIONS = {
    "encoder": "the encoder alone in each precision",
    "pipeline": "JPEG bytes to captions: greedy and beam 3, batches, sizes of photos",
    "batch": "captioner batch on folders, cold starts",
    "lanes": "how many batches at once suit this machine",
    "profile": "where the time goes",
    "pytorch": "the same weights in PyTorch, eager and compiled",
    "peers": "BLIP-base and ViT-GPT2 of transformers",
    "serving": "captioner serve, mosec and LitServe under load",
    "cost": "cost against words, beam, batch and the size of a folder",
}
_QUIET_LOAD = 0.3


def main() -> int:
    args = _arguments()
    results = json.loads(args.results.read_text()) if args.results else _measure(args)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if args.markdown:
        markdown.write(args.markdown, results)
    else:
        print(markdown.render(results))
    return 0


def _arguments() -> argparse.Namespace:
    listed = "\n".join(f"  {name:<10} {what}" for name, what in SECTIONS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"sections:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, metavar="BUNDLE", help="default: the embedded model")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: one per core)")
    parser.add_argument("--yardstick", type=Path, metavar="SCRIPT")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", default=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="spent on each figure (3)")
    parser.add_argument("--folder-sizes", type=int, nargs="+", metavar="N", default=[100, 1_000, 10_000])
    parser.add_argument("--quick", action="store_true", help="run everything once, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument("--results", type=Path, metavar="FILE", help="measure nothing, read these results")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the tables between the markers of this document"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="write latency against load here")
    return parser.parse_args()


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(
        model=args.model,
        threads=args.threads,
        seconds=0.0 if args.quick else args.seconds,
        quick=args.quick,
        yardstick=args.yardstick,
        folder_sizes=(10,) if args.quick else tuple(args.folder_sizes),
    )
    os.environ["XDG_CACHE_HOME"] = str(bench.work / "cache")
    results: dict[str, Any] = {"machine": machine.describe(), "quick": args.quick, "sections": {}}
    if results["machine"]["load_before"] > _QUIET_LOAD and not args.quick:
        _say(f"the machine is busy (load {results['machine']['load_before']}): figures will be too low")
    try:
        for name in args.only:
            _say(f"{name}: {SECTIONS[name]}")
            started = time.monotonic()
            try:
                tables = importlib.import_module(f"measures.{name}").measure(bench)
                results["sections"][name] = [asdict(table) for table in tables]
            except Skip as reason:
                bench.skip(name, str(reason))
            _say(f"{name}: {time.monotonic() - started:.0f} s")
        if args.plot and (bench.work / "latency.png").exists():
            shutil.copy(bench.work / "latency.png", args.plot)
    finally:
        shutil.rmtree(bench.work)
    results["model"] = bench.captioner().model
    results["skipped"] = bench.skipped
    return results


def _say(line: str) -> None:
    print(f"speed.py: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
