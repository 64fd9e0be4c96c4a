#!/usr/bin/env python3
"""Every check and measurement on a GPU: Markdown and JSON. README.md has the commands, with their times.

    pip install '.[gpu,train,dev]'
    measure.py --json gpu.json                                  # everything, eight minutes
    measure.py --only parity throughput --json serving.json     # some of it
    measure.py --results *.json --write docs/performance.md     # write what earlier runs measured
    measure.py --device cpu                 # on any machine: run every line once, measure nothing

The results of each section are written as soon as it ends. The exit status is 1 if something does not hold:
the sessions really run on CUDA, captions and maps are those of the CPU, CUDA that cannot be used is refused,
the service answers in every protocol, an epoch is trained.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `gpu`, `measures` and `serving`

from measures import machine, markdown
from measures.bench import Bench

from gpu import binding, checks, encoder, load, rate, training

SECTIONS = {
    "providers": checks.providers,
    "parity": checks.parity,
    "broken": checks.broken_cuda,
    "protocols": load.protocols,
    "throughput": load.throughput,
    "encoder": encoder.alone,
    "parts": encoder.parts,
    "lanes": load.lanes,
    "binding": binding.bound,
    "service": load.service,
    "rate": rate.rate,
    "pytorch": encoder.pytorch,
    "training": training.epoch,
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
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="spent on each figure (1)")
    parser.add_argument("--quick", action="store_true", help="run everything once, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here")
    parser.add_argument(
        "--results", type=Path, nargs="+", metavar="FILE", help="measure nothing: take these results"
    )
    parser.add_argument(
        "--write",
        type=markdown.existing,
        nargs="+",
        default=[],
        metavar="FILE",
        help="write the tables between the lines <!-- gpu --> and <!-- /gpu --> of documents, such as the"
        " model card that captioner export is given",
    )
    args = parser.parse_args()
    results = _together(args.results) if args.results else _run(args)
    for document in args.write:
        markdown.write(document, results, "gpu")
    print(markdown.render(results))
    return 0 if all(results["holds"].values()) else 1


def _run(args: argparse.Namespace) -> dict[str, Any]:
    quick = args.quick or args.device == "cpu"
    seconds = 0.0 if quick else args.seconds
    bench = Bench(model=args.model, device=args.device, seconds=seconds, quick=quick)
    try:
        return _measure(bench, args.only, args.json)
    finally:
        shutil.rmtree(bench.work)


def _measure(bench: Bench, names: list[str], file: Path | None) -> dict[str, Any]:
    """Everything that there is time for; a section that fails does not keep others from being measured."""
    results: dict[str, Any] = {
        "command": f"python benchmarks/gpu/measure.py --device {bench.device}",
        "machine": machine.describe() | machine.gpu(),
        "quick": bench.quick,
        "sections": {},
        "holds": {},
        "seconds": 0,
        "skipped": bench.skipped,
    }
    began = time.monotonic()
    for name in names:
        if time.monotonic() - began > BUDGET_S:
            bench.skip(name, "there was no time left")
            _save(results, file)
            continue
        print(f"measure.py: {name}", file=sys.stderr, flush=True)
        try:
            tables, holds = SECTIONS[name](bench)
        except (Exception, SystemExit) as error:
            said = str(error).strip().rpartition("\n")[2]  # of a traceback, what was raised
            holds = {f"{name}: {type(error).__name__}: {said}": False}
        else:
            results["sections"][name] = [asdict(table) for table in tables]
        results["holds"] |= holds
        for what, good in holds.items():
            print(f"measure.py: {'holds' if good else 'FAILS'}: {what}", file=sys.stderr, flush=True)
        results["seconds"] = round(time.monotonic() - began)
        _save(results, file)
    return results


def _save(results: dict[str, Any], file: Path | None) -> None:
    if file:
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _together(files: Iterable[Path]) -> dict[str, Any]:
    """The results of several runs as those of one; of two of a section the last counts."""
    read = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    whole = {**read[0], "seconds": sum(results["seconds"] for results in read)}
    for part in ("sections", "holds"):
        whole[part] = {name: value for results in read for name, value in results[part].items()}
    whole["skipped"] = list(dict.fromkeys(line for results in read for line in results["skipped"]))
    return whole


if __name__ == "__main__":
    sys.exit(main())
