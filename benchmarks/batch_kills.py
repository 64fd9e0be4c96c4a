#!/usr/bin/env python3
"""Kill a batch again and again, then compare its output with an uninterrupted run, byte for byte.

    batch_kills.py PHOTOS [--kills 50] [--format jsonl] [-- flags of captioner batch]

PHOTOS is a folder or an archive. Every kill (SIGKILL) hits a batch that is running, at a random moment from
its start on; when a batch gets through, its output is compared and another is begun. Prints a line for
docs/batch.md; the exit status is 1 if an output differed.
"""

from __future__ import annotations

import argparse
import filecmp
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from captioner.folder.outputs import OutputOptions, make_output

TABLES = ("jsonl", "csv", "parquet")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--format", default="jsonl")
    parser.add_argument("--seed", type=int, default=0)
    own, flags = sys.argv[1:], []
    if "--" in own:
        own, flags = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(args, flags, Path(folder))
        while trial.landed < args.kills:
            trial.kill_once()
        trial.finish()
    verdict = "differed" if trial.differed else "all the same to the byte"
    print(
        f"{trial.images} images as {args.format}: {trial.landed} kills in {trial.batches} batches, with "
        f"{min(trial.shares):.0%} to {max(trial.shares):.0%} of the images kept; outputs {verdict} "
        f"(an uninterrupted run takes {trial.whole_s:.0f} s, {trial.start_s:.1f} s of that to start)"
    )
    sys.exit(trial.differed > 0)


class Trial:
    """An uninterrupted run, and batches that are killed."""

    def __init__(self, args: argparse.Namespace, flags: list[str], folder: Path) -> None:
        self._kills, self._random = args.kills, random.Random(args.seed)
        suffix = f".{args.format}" if args.format in TABLES else ""
        self._whole, self._killed = folder / f"whole{suffix}", folder / "0" / f"killed{suffix}"
        self._command = [sys.executable, "-m", "captioner", "batch", str(args.photos), *flags]
        self._command += ["--format", args.format, "-o"]
        self.whole_s = self._run(self._whole)
        self.start_s = self._run(self._whole)  # nothing is left to do
        self.images = self._count_done(self._whole)
        self.landed, self.batches, self.differed = 0, 0, 0
        self.shares: list[float] = []
        """How many of the images were kept when a kill hit."""
        self._begin()

    def _run(self, out: Path) -> float:
        started = time.monotonic()
        status = subprocess.run([*self._command, out], stderr=subprocess.PIPE, text=True)
        if status.returncode not in (0, 1):
            sys.exit(status.stderr)
        return time.monotonic() - started

    def _begin(self) -> None:
        self.batches += 1
        self._killed = self._killed.parent.parent / str(self.batches) / self._killed.name
        self._killed.parent.mkdir()

    def kill_once(self) -> None:
        """Or let the batch get through, when it is faster."""
        process = subprocess.Popen([*self._command, self._killed], stderr=subprocess.DEVNULL)
        # Some twenty kills for each batch, a quarter of them while it starts.
        work_s = 2 * (self.whole_s - self.start_s) / 20
        try:
            process.wait(self._random.uniform(0.5 * self.start_s, self.start_s + work_s))
            self._compare()
            self._begin()
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.landed += 1
            self.shares.append(self._count_done(self._killed) / self.images)
            print(f"{self.landed}: {self.shares[-1]:.0%} kept", file=sys.stderr)

    def finish(self) -> None:
        self._run(self._killed)
        self._compare()

    def _count_done(self, out: Path) -> int:
        state = make_output(out, OutputOptions(), self._command[-2]).state_path
        return count_results(state) if state.exists() else 0

    def _compare(self) -> None:
        if self._whole.is_file():
            same = filecmp.cmp(self._whole, self._killed, shallow=False)
        else:
            same = read_tree(self._whole) == read_tree(self._killed)
        self.differed += not same


def count_results(state: Path) -> int:
    """Images in the state of a batch. A copy is read, so that recovering it is left to the next run."""
    with tempfile.TemporaryDirectory() as folder:
        for path in state.parent.glob(f"{state.name}*"):
            shutil.copy(path, folder)
        connection = sqlite3.connect(Path(folder, state.name))
        try:
            return int(connection.execute("SELECT count(*) FROM results").fetchone()[0])
        except sqlite3.OperationalError:  # killed before there was a table
            return 0
        finally:
            connection.close()


def read_tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


if __name__ == "__main__":
    main()
