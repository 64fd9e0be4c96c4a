"""What every section of the benchmarks is given, and the tables that it gives back."""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from serving.common import Server, running_server

from captioner import Captioner, CaptionOptions
from captioner.errors import CaptionerError

ROOT = Path(__file__).parents[2]


class Skip(Exception):
    """A section cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Table:
    """Rows of a measurement, each a value by column; a dict in JSON, a table in Markdown."""

    title: str
    rows: list[dict[str, Any]]
    note: str = ""


@dataclass(frozen=True)
class Bench:
    """How to measure."""

    model: Path | None = None
    """Bundle; None is the embedded one."""
    device: str = "cpu"
    threads: int | None = None
    seconds: float = 3.0
    """Spent on each figure."""
    repeats: int = 3
    """Measurements of each row; each stands beside its reference."""
    quick: bool = False
    """Whether to run every line of code once instead of measuring."""
    yardstick: Path | None = None
    """Script that prints the milliseconds an image of the bare encoder in ONNX Runtime float32."""
    folder_sizes: tuple[int, ...] = (100, 1_000, 10_000)
    skipped: list[str] = field(default_factory=list)
    """What was left out, with the reason."""
    work: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="captioner-speed-")))
    """Folder for photos and outputs; the caller deletes it."""

    def captioner(self, precision: str = "auto", lanes: int | None = 1) -> Captioner:
        """The model; `lanes` is None for many photos, 1 for single ones and single batches."""
        return _load(self.model, self.device, self.threads, precision, lanes)

    def server(self, *flags: str) -> AbstractContextManager[Server]:
        """`captioner serve` with the same model."""
        model = str(self.model) if self.model else None
        return running_server(argparse.Namespace(model=model, device=self.device, serve=[]), *flags)

    def precisions(self) -> list[str]:
        """Those that can be measured here."""
        try:
            self.captioner("int8")
        except CaptionerError as error:
            self.skip("INT8", str(error))
            return ["float32"]
        return ["float32", "int8"]

    def skip(self, what: str, reason: str) -> None:
        line = f"{what}: {reason}"
        if line not in self.skipped:
            self.skipped.append(line)

    def has(self, package: str, what: str) -> bool:
        """Whether a package is installed; `what` is skipped otherwise."""
        found = importlib.util.find_spec(package) is not None
        if not found:
            self.skip(what, f"{package} is not installed")
        return found

    def flags(self, precision: str | None = None) -> list[str]:
        """Flags of the command line for the same model."""
        flags = ["--model", str(self.model)] if self.model else []
        flags += ["--threads", str(self.threads)] if self.threads else []
        flags += ["--precision", precision] if precision else []
        return [*flags, "--device", self.device]

    def median_ms(self, call: Callable[[], object]) -> float:
        """Median time of a call, after one that is not counted."""
        return 1000 * statistics.median(self.times(call))

    def times(self, call: Callable[[], object]) -> list[float]:
        """Seconds of each call that fits into `seconds`, at least three; a first one does not count."""
        call()
        times: list[float] = []
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end or len(times) < (1 if self.quick else 3):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        return times


SEARCHES = {"greedy": CaptionOptions(beam_size=1), "beam 3": CaptionOptions(beam_size=3)}


@cache
def _load(
    model: Path | None, device: str, threads: int | None, precision: str, lanes: int | None
) -> Captioner:
    return Captioner.load(model, device=device, threads=threads, precision=precision, lanes=lanes)


def ratio(reference_ms: float | None, ms: float) -> float | None:
    """How many times as fast as the reference, where there is one."""
    return round(reference_ms / ms, 2) if reference_ms else None


def column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows]
