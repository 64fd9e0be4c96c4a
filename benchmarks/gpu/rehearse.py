#!/usr/bin/env python3
"""Runs the numbered commands of README.md on a CPU without a network, as far as a CPU can.

    rehearse.py --parts build/parts --photos SAMPLE --python python3.12 [--only 1 2 7]

Each command runs in a copy of benchmarks/ and examples/, the only part of the repository that travels, with
what it brings in build/. Prints the seconds, the exit status and the end of the output of each.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SMALLER = ["--device cpu", "--threads 1", "--set min_count=2", "--set model.image_size=96"]
SMALLER += [f"--set model.{name}=48" for name in ("hidden", "features", "embedding", "attention_hidden")]
SMALLER += [f"--set stages.{stage}.seconds={s}" for stage, s in enumerate((5, 15, 10))]
SMALLER += [f"--set stages.{stage}.batch_captions=64" for stage in range(3)]
"""In place of `--device cuda` where a model is trained."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", type=Path, required=True, metavar="DIR", help="of deploy/offline/pack")
    parser.add_argument("--photos", type=Path, required=True, metavar="DIR", help="of pack_photos.py")
    parser.add_argument("--python", default="python3", metavar="PYTHON", help="the machine's (python3)")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="numbers of commands (default: all)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder to work in; it is kept")
    args = parser.parse_args()
    place = args.keep or Path(tempfile.mkdtemp(prefix="captioner-rehearsal-"))
    try:
        results = [
            run(number, command, place, args)
            for number, command in commands()
            if number in (args.only or (number,))
        ]
    finally:
        if not args.keep:
            shutil.rmtree(place)
    return 0 if all(results) else 1


def commands() -> Iterator[tuple[int, str]]:
    """The numbered commands of the page that need no other model."""
    page = (HERE / "README.md").read_text()
    for number, rest in re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^If there|^What is left)", page, re.M | re.S):
        [command] = re.findall(r"^ {7}(\S.*)$", rest, re.M)
        if "BUNDLE" not in command:
            yield int(number), command


def run(number: int, command: str, place: Path, args: argparse.Namespace) -> bool:
    """Whether the command ended well."""
    machine, home, out = place / "machine", place / "home", place / f"out{number}"
    for name in ("benchmarks", "examples"):
        shutil.copytree(HERE.parents[1] / name, machine / name, dirs_exist_ok=True)
    for folder in (home / "bin", out):
        folder.mkdir(parents=True, exist_ok=True)
    for name, source in (("parts", args.parts), ("photos", args.photos)):
        if number == 1 or name == "photos":
            shutil.copytree(source, machine / "build" / name, dirs_exist_ok=True)
    python = home / "bin" / "python3"
    python.unlink(missing_ok=True)
    python.write_text(f'#!/bin/sh\nexec {shutil.which(args.python)} "$@"\n')
    python.chmod(0o755)
    small = command.replace("gpu --device cuda", f"gpu {' '.join(SMALLER)}").replace(
        "--device cuda", "--device cpu"
    )
    small = re.sub(r"timeout \d+ ", "", small).replace("--seconds 500", "--seconds 5000")
    small = small.replace("/dev/shm/cache", "~/cache")
    environment = {
        **os.environ,
        "HOME": str(home),
        "OUT": str(out),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    alone = ["unshare", "--net", "sh", "-c", f"ip link set lo up 2>/dev/null; {small}"]
    started = time.monotonic()
    done = subprocess.run(
        alone, cwd=machine, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(f"== {number}: status {done.returncode}, {time.monotonic() - started:.0f} s: {small}")
    print(done.stdout[-1500:])
    print(
        "left:",
        ", ".join(f"{path.name} {path.stat().st_size / 1e6:.2f} MB" for path in sorted(out.iterdir())),
        flush=True,
    )
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
