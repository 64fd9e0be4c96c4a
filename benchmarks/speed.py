#!/usr/bin/env python3
"""How fast captioning is on this machine, and beside what: one command of ten minutes, JSON or Markdown.

    speed.py --yardstick SCRIPT [--json FILE] [--markdown | --write docs/performance.md]
    speed.py --yardstick SCRIPT --only folder photo             # some rows
    speed.py --only encoder lanes profile                       # and what lies behind them
    speed.py --results FILE --write docs/performance.md         # what was measured before

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
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measures import machine, markdown
from measures.bench import Bench, Skip, Table
from measures.rows import ROWS

SECTIONS = {
    "encoder": "the encoder alone in each precision",
    "pipeline": "JPEG bytes to captions: greedy and beam 3, batches, sizes of photos",
    "lanes": "how many batches at once suit this machine",
    "profile": "where the time goes",
    "pytorch": "the same weights in PyTorch, eager and compiled",
    "peers": "BLIP-base and ViT-GPT2 of transformers",
    "serving": "captioner serve, mosec and LitServe under load, plotted",
    "cost": "cost against words, beam, batch and the size of a folder",
}
_QUIET_LOAD = 0.3


def main() -> int:
    args = _arguments()
    results = json.loads(args.results.read_text()) if args.results else _measure(args)
    text = json.dumps(results, indent=1)
    if args.json:
        args.json.write_text(text + "\n", encoding="utf-8")
    if args.write:
        markdown.write(args.write, results, "speed")
    print(markdown.render(results) if args.markdown else text)
    return 0


def _arguments() -> argparse.Namespace:
    rows = "\n".join(f"  {name:<10} {(measure.__doc__ or '').strip()}" for name, measure in ROWS.items())
    sections = "\n".join(f"  {name:<10} {what}" for name, what in SECTIONS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"rows:\n{rows}\n\nsections, measured when named:\n{sections}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", type=Path, metavar="BUNDLE", help="default: the embedded model")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads (default: one per core)")
    parser.add_argument("--yardstick", type=Path, metavar="SCRIPT")
    parser.add_argument(
        "--only", nargs="+", choices=[*ROWS, *SECTIONS], metavar="NAME", default=list(ROWS), help="all rows"
    )
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each row (3)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="spent on each figure (3)")
    parser.add_argument("--folder-sizes", type=int, nargs="+", metavar="N", default=[100, 1_000, 10_000])
    parser.add_argument("--quick", action="store_true", help="run everything once, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    parser.add_argument("--results", type=Path, metavar="FILE", help="measure nothing, read these results")
    parser.add_argument("--markdown", action="store_true", help="print tables instead of JSON")
    parser.add_argument(
        "--write",
        type=markdown.existing,
        metavar="FILE",
        help="write the tables between the markers of this document too",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="write latency against load here")
    return parser.parse_args()


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(
        model=args.model,
        threads=args.threads,
        seconds=0.0 if args.quick else args.seconds,
        repeats=1 if args.quick else args.repeats,
        quick=args.quick,
        yardstick=args.yardstick,
        folder_sizes=(10,) if args.quick else tuple(args.folder_sizes),
    )
    os.environ["XDG_CACHE_HOME"] = str(bench.work / "cache")
    results: dict[str, Any] = {"command": _command(args), "machine": machine.describe(), "quick": args.quick}
    if results["machine"]["load_before"] > _QUIET_LOAD and not args.quick:
        _say(f"the machine is busy (load {results['machine']['load_before']}): figures will be too low")
    try:
        bench.precisions()  # the graphs are in the cache from here on
        rows = [row for name in args.only if name in ROWS for row in _try(bench, name, ROWS[name]) or ()]
        note = "The ratio is the median of the repeats; the next column shows the lowest and the highest."
        tables = {"rows": [Table("Results and targets", rows, note)]} if rows else {}
        for name in args.only:
            if name in SECTIONS:
                measure = importlib.import_module(f"measures.{name}").measure
                tables |= {name: _try(bench, name, measure) or []}
        if args.plot and (bench.work / "latency.png").exists():
            shutil.copy(bench.work / "latency.png", args.plot)
        model = bench.captioner().model  # before the folder is deleted: loading may write its cache there
    finally:
        shutil.rmtree(bench.work)
    results["sections"] = {name: [asdict(table) for table in found] for name, found in tables.items()}
    return {**results, "model": model, "skipped": bench.skipped}


def _try(bench: Bench, name: str, measure: Callable[[Bench], list[Any]]) -> list[Any] | None:
    """What a row or section measures; None where it cannot be measured here, or fails: minutes of other
    measurements are not lost with it."""
    _say(name)
    started = time.monotonic()
    try:
        return measure(bench)
    except (Exception, SystemExit) as error:
        bench.skip(name, str(error) if isinstance(error, Skip) else f"{type(error).__name__}: {error}")
        return None
    finally:
        _say(f"{name}: {time.monotonic() - started:.0f} s")


def _command(args: argparse.Namespace) -> str:
    """The command that measures the same again, without the paths of this machine."""
    words = ["python", "benchmarks/speed.py"]
    words += ["--yardstick", args.yardstick.name] if args.yardstick else []
    words += ["--model", args.model.name] if args.model else []
    words += ["--threads", str(args.threads)] if args.threads else []
    words += ["--only", *args.only] if args.only != list(ROWS) else []
    words += ["--repeats", str(args.repeats)] if args.repeats != 3 else []
    return " ".join(words)


def _say(line: str) -> None:
    print(f"speed.py: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
