"""Commands of `captioner` as processes, with their time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    seconds: float
    """From the start of the process to its end."""
    peak_mb: float
    """Most memory that the process, or one that it started, had resident."""
    output: str


def captioner(*arguments: str | Path, environment: dict[str, str] | None = None) -> Run:
    """Raises `SystemExit` when the command fails."""
    return run_python("-m", "captioner", *map(str, arguments), environment=environment)


def run_python(*arguments: str, environment: dict[str, str] | None = None) -> Run:
    """Run this Python with arguments. Raises `SystemExit` when that fails."""
    launcher = [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py"))]
    done = subprocess.run(
        [*launcher, sys.executable, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    seconds, peak_mb, status, output = json.loads(done.stdout)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with {status}")
    return Run(seconds, peak_mb, output)
