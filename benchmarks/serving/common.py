"""What the benchmarks of the server share: a server process, photos, its metrics, a watch on its health."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `measures`
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="BUNDLE", help="default: the embedded model")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    parser.add_argument("--images", type=Path, metavar="FOLDER", help="photos to send; default: made-up ones")
    parser.add_argument(
        "--serve", nargs=argparse.REMAINDER, default=[], metavar="FLAG", help="last: flags of captioner serve"
    )


class Server:
    """`captioner serve` as a process."""

    def __init__(self, args: argparse.Namespace, *flags: str, cores: set[int] | None = None) -> None:
        """On some cores only, where they are given."""
        self.metrics_port = free_port()
        command = [sys.executable, "-m", "captioner", "serve", "--port", "0", "--log-format", "json"]
        command += ["--metrics-port", str(self.metrics_port), "--device", args.device]
        command += ["--model", args.model] if args.model else []
        command += ["--threads", str(len(cores))] if cores else []
        with pinned(cores):
            self.process = subprocess.Popen(
                [*command, *flags, *args.serve], stderr=subprocess.PIPE, text=True
            )
        self.events: dict[str, dict[str, Any]] = {}
        self.errors: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.wait_for("serving")
        self.address: str = self.events["listening"]["address"]

    def wait_for(self, event: str, timeout_s: float = 300) -> None:
        limit = time.monotonic() + timeout_s
        while event not in self.events:
            if not self._reader.is_alive() or time.monotonic() > limit:
                said = self.errors[-1].strip() if self.errors else "nothing was said"
                raise SystemExit(f"the server did not come to {event}: {said}")
            time.sleep(0.01)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=30) as page:
            text = page.read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))

    def peak_mib(self) -> float:
        """The most memory that the server itself has had so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def memory_mib(self) -> float:
        """Memory of the server and of its decoding processes; what they share counts once (PSS)."""
        kib = 0
        for pid in self._processes():
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kib += sum(map(int, re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)))
        return kib / 1024

    def cpu_s(self) -> float:
        """Processor time that the server and its decoding processes have used so far."""
        ticks = 0
        for pid in self._processes():
            user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
        return ticks / os.sysconf("SC_CLK_TCK")

    def _processes(self) -> set[int]:
        """The server and what it started."""
        parents: dict[int, int] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                stat = (folder / "stat").read_text()
                parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
        family = {self.process.pid}
        while more := {child for child, parent in parents.items() if parent in family} - family:
            family |= more
        return family

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; returns the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(120)
        self._reader.join()
        return status

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            if '"event": "call"' in line:
                continue  # there are many
            if line.startswith("{") and (record := json.loads(line))["level"] == "info":
                self.events[record["event"]] = record
            else:
                self.errors.append(line)


@contextmanager
def running_server(args: argparse.Namespace, *flags: str, cores: set[int] | None = None) -> Iterator[Server]:
    server = Server(args, *flags, cores=cores)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@contextmanager
def pinned(cores: set[int] | None) -> Iterator[None]:
    """What is started in here runs on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def load_images(folder: Path | None, count: int = 64) -> list[bytes]:
    """JPEG files of about a photo's size and detail, or those of a folder."""
    if folder is not None:
        paths = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES]
        if not paths:
            raise SystemExit(f"no images in {folder}")
        return [path.read_bytes() for path in paths[:count]]
    images = []
    for seed in range(count):
        coarse = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        images.append(buffer.getvalue())
    return images


@contextmanager
def watched_health(address: str, interval_s: float = 0.02) -> Iterator[list[float]]:
    """Ask for health all the while, from a process of its own; the answer times in seconds are in the list
    afterwards, infinity for a failure."""
    context = multiprocessing.get_context("spawn")
    stop, receiver_and_sender = context.Event(), context.Pipe(duplex=False)
    receiver, sender = receiver_and_sender
    process = context.Process(target=_watch_health, args=(address, interval_s, stop, sender), daemon=True)
    process.start()
    receiver.recv()  # it is asking
    times: list[float] = []
    try:
        yield times
    finally:
        stop.set()
        times.extend(receiver.recv())
        process.join()


def _watch_health(address: str, interval_s: float, stop: Event, sender: Any) -> None:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    times = []
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(health_pb2.HealthCheckRequest(), timeout=10, wait_for_ready=True)
        sender.send(None)
        while not stop.wait(interval_s):
            started = time.perf_counter()
            try:
                status = stub.Check(health_pb2.HealthCheckRequest(), timeout=10).status
                good = status == health_pb2.HealthCheckResponse.SERVING
            except grpc.RpcError:
                good = False
            times.append(time.perf_counter() - started if good else float("inf"))
    sender.send(times)


async def run_clients(
    address: str, images: list[bytes], clients: int, seconds: float
) -> tuple[list[float], list[str]]:
    """Each client asks again as soon as it is answered; returns the waits in seconds, and the errors."""
    from captioner import CaptionOptions
    from captioner_client import AsyncCaptionClient

    waits: list[float] = []
    errors: list[str] = []
    until = time.perf_counter() + seconds
    options = CaptionOptions()

    async def run(number: int) -> None:
        async with AsyncCaptionClient(address) as client:
            turn = number
            while (started := time.perf_counter()) < until:
                try:
                    await client.caption(images[turn % len(images)], options)
                    waits.append(time.perf_counter() - started)
                except Exception as error:
                    errors.append(f"{type(error).__name__}: {error}")
                turn += 1

    await asyncio.gather(*map(run, range(clients)))
    return waits, errors


def percentiles_ms(seconds: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum, in milliseconds."""
    values = np.asarray(seconds) * 1000
    return {
        "p50": round(float(np.percentile(values, 50)), 2),
        "p99": round(float(np.percentile(values, 99)), 2),
        "max": round(float(values.max()), 2),
    }


def report(result: dict[str, Any], checks: dict[str, bool]) -> int:
    """Print the figures and whether each promise held; returns the exit status."""
    machine = {"cores": os.cpu_count(), "python": sys.version.split()[0]}
    print(json.dumps({**result, "holds": checks, "machine": machine}, indent=2))
    return 0 if all(checks.values()) else 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
