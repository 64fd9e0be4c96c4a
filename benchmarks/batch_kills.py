#!/usr/bin/env python3
"""Kill a batch again and again, then compare its output with an uninterrupted run, byte for byte.

batch_kills.py FOLDER [--kills 50] [--format jsonl] [-- flags of captioner batch]
"""

from __future__ import annotations

import argparse
import filecmp
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TABLES = ("jsonl", "csv", "parquet")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--format", default="jsonl")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("flags", nargs="*")
    args = parser.parse_args()
    random.seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        suffix = f".{args.format}" if args.format in TABLES else ""
        whole, killed = Path(folder, f"whole{suffix}"), Path(folder, f"killed{suffix}")
        command = [sys.executable, "-m", "captioner", "batch", str(args.folder), "--format", args.format]
        started = time.monotonic()
        subprocess.run([*command, "-o", whole, *args.flags], stderr=subprocess.DEVNULL)
        whole_s = time.monotonic() - started
        landed = 0
        for _ in range(args.kills):
            process = subprocess.Popen([*command, "-o", killed, *args.flags], stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, max(1.0, 4 * whole_s / args.kills)))
            landed += process.poll() is None
            process.kill()
            process.wait()
        subprocess.run([*command, "-o", killed, *args.flags], stderr=subprocess.DEVNULL)
        same = filecmp.cmp(whole, killed, shallow=False) if whole.is_file() else same_trees(whole, killed)
    verdict = "the same" if same else "NOT the same"
    print(f"{landed} of {args.kills} kills hit a running batch; the output is {verdict}")
    sys.exit(not same)


def same_trees(one: Path, other: Path) -> bool:
    return read_tree(one) == read_tree(other)


def read_tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


if __name__ == "__main__":
    main()
