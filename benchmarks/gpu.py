#!/usr/bin/env python3
"""Every check and measurement on a GPU in one command of at most eight minutes: Markdown and JSON.

    pip install '.[gpu,train,dev]'
    gpu.py [--json gpu.json] [--write docs/performance.md]
    gpu.py --device cpu                 # on any machine: run every line once, measure nothing

The exit status is 1 if something does not hold: the sessions really run on CUDA, captions are those of the
CPU, CUDA that cannot be used is refused, the service answers, an epoch is trained.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measures import gpu_checks, gpu_load, gpu_training, machine, markdown
from measures.bench import Bench

SECTIONS = {
    "providers": gpu_checks.providers,
    "parity": gpu_checks.parity,
    "broken": gpu_checks.broken_cuda,
    "throughput": gpu_load.throughput,
    "service": gpu_load.service,
    "training": gpu_training.epoch,
}
BUDGET_S = 420.0
"""No section is begun after so long; the longest takes about a minute."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, metavar="BUNDLE", help="default: the embedded model")
    parser.add_argument("--device", default="cuda", metavar="cuda|cuda:N|cpu", help="default: cuda")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", default=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="spent on each figure (2)")
    parser.add_argument("--quick", action="store_true", help="run everything once, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument(
        "--write",
        type=markdown.existing,
        metavar="FILE",
        help="write the tables between the markers of this document",
    )
    args = parser.parse_args()
    quick = args.quick or args.device == "cpu"
    seconds = 0.0 if quick else args.seconds
    bench = Bench(model=args.model, device=args.device, seconds=seconds, quick=quick)
    try:
        results = _measure(bench, args.only)
    finally:
        shutil.rmtree(bench.work)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if args.write:
        markdown.write(args.write, results, "gpu")
    print(markdown.render(results))
    return 0 if all(results["holds"].values()) else 1


def _measure(bench: Bench, names: list[str]) -> dict[str, Any]:
    """Everything that there is time for; a section that fails does not keep others from being measured."""
    results: dict[str, Any] = {
        "command": f"python benchmarks/gpu.py --device {bench.device}",
        "machine": machine.describe() | _gpu(),
        "quick": bench.quick,
        "sections": {},
        "holds": {},
    }
    began = time.monotonic()
    for name in names:
        if time.monotonic() - began > BUDGET_S:
            bench.skip(name, "there was no time left")
            continue
        print(f"gpu.py: {name}", file=sys.stderr, flush=True)
        try:
            tables, checks = SECTIONS[name](bench)
        except (Exception, SystemExit) as error:
            checks = {f"{name}: {type(error).__name__}: {error}": False}
        else:
            results["sections"][name] = [asdict(table) for table in tables]
        results["holds"] |= checks
        for what, good in checks.items():
            print(f"gpu.py: {'holds' if good else 'FAILS'}: {what}", file=sys.stderr, flush=True)
    results["seconds"] = round(time.monotonic() - began)
    results["skipped"] = bench.skipped
    return results


def _gpu() -> dict[str, str]:
    """The name, memory and driver of the first GPU, where there is one."""
    fields = "--query-gpu=name,memory.total,driver_version"
    try:
        done = subprocess.run(
            ["nvidia-smi", fields, "--format=csv,noheader"], check=True, capture_output=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"gpu": done.stdout.splitlines()[0]}


if __name__ == "__main__":
    sys.exit(main())
