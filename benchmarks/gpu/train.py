#!/usr/bin/env python3
"""Trains on a machine that may be gone in a minute: what is best so far is brought out all the while.

    train.py --out $OUT gpu --device cuda --data-root DATA -o RUN      # flags of captioner train

OUT gets best.pt in parts of at most 15 MiB (`cat best.pt.* > best.pt` puts them together), log.jsonl,
training.json for `measure.py --results`, and train.log: at most eight files. The same command again goes on.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `measures`

from measures import machine
from measures.bench import Table

PART_BYTES = 15 * 2**20
EVERY_S = 5.0
"""How often it looks for something new."""
SCORES = {"cider": "CIDEr", "perplexity": "perplexity", "named": "named %"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="folder that comes back")
    parser.add_argument(
        "--seconds", type=float, default=540.0, metavar="S", help="interrupt the training after so long (540)"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="RUN", help="folder of the run")
    args, flags = parser.parse_known_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    flags += ["--output", str(args.output)]
    command = [sys.executable, "-m", "captioner", "train", *flags]
    with (args.out / "train.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        ends, seen = time.monotonic() + args.seconds, -1
        while (status := _status(process, EVERY_S)) is None:
            if (new := bring(args.output, args.out, seen)) != seen:
                seen = new
                report(args.output, args.out, flags, "running")
            if time.monotonic() > ends:
                process.send_signal(signal.SIGINT)
                ends = float("inf")
    bring(args.output, args.out, seen)
    print((args.out / "train.log").read_text(errors="replace")[-4000:])
    report(args.output, args.out, flags, status)
    return status


def _status(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit status, or None if it has not ended by then."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def bring(run: Path, out: Path, seen: int) -> int:
    """Copy what is best if it is new since `seen`; its time, to be given next."""
    best = run / "best.pt"
    if not best.exists() or (changed := best.stat().st_mtime_ns) == seen:
        return seen
    content = best.read_bytes()
    pieces = [content[start : start + PART_BYTES] for start in range(0, len(content), PART_BYTES)]
    names = [out / f"best.pt.{number:02}" for number in range(len(pieces))]
    for name, piece in zip(names, pieces, strict=True):
        name.with_name(f".{name.name}").write_bytes(piece)
    for name in names:  # all at once: a command may be killed at any moment
        name.with_name(f".{name.name}").replace(name)
    if (log := run / "log.jsonl").exists():
        (out / "log.jsonl").write_bytes(log.read_bytes())
    return changed


def report(run: Path, out: Path, flags: Sequence[str], status: int | str) -> None:
    """Write the run as results of `measure.py`."""
    log = run / "log.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    rows = [row for stage in dict.fromkeys(one["stage"] for one in records) if (row := _row(stage, records))]
    seconds = sum(record.get("seconds", 0.0) for record in records)
    table = Table("Training", rows, "Photos a second are those of its steps, without validation.")
    results = {
        "command": " ".join(["captioner", "train", *flags]),
        "machine": machine.describe() | machine.gpu(),
        "quick": False,
        "sections": {"training": [asdict(table)]},
        "holds": {"a run is trained to its end": status == 0},
        "seconds": round(seconds),
        "skipped": [],
    }
    (out / "training.json").write_text(json.dumps(results, indent=1) + "\n")


def _row(stage: str, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = [record for record in records if record["stage"] == stage and "seconds" in record]
    seconds = sum(record["seconds"] for record in own)
    row: dict[str, Any] = {"stage": stage, "epochs": len(own), "seconds": round(seconds, 1)}
    row["photos/s"] = sum(record["photos"] for record in own) / max(seconds, 1e-6)
    row["loss"] = own[-1]["loss"] if own else None
    scores = next((record["val"] for record in reversed(own) if "val" in record), {})
    for source, values in scores.items():
        row |= {f"{source}: {text}": values[name] for name, text in SCORES.items() if name in values}
    return row


if __name__ == "__main__":
    sys.exit(main())
