"""Python in processes of its own; servers, told apart by their JSON logs."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.patience import PATIENCE_S

FAKE_SERVER = Path(__file__).with_name("fake_server.py")


def child_environment() -> dict[str, str]:
    """For Python processes that import what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300
    )


class ServerProcess:
    """A running server; `events` are its log lines as they come."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=child_environment())
        self.lines: list[str] = []
        self.reading = threading.Event()
        """While clear, nobody reads its log."""
        self.reading.set()
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self.metrics_url = ""

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line)
            self.reading.wait()
            if line.startswith("{"):
                event = json.loads(line)
                if event["event"] == "metrics":
                    self.metrics_url = event["url"]
                self.events.put(event)

    def wait_for(self, event: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The next log line of that event."""
        while True:
            try:
                found = self.events.get(timeout=timeout_s)
            except queue.Empty:
                raise AssertionError(f"no {event} in: {''.join(self.lines)}") from None
            if found["event"] == event:
                return found

    def tell(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self, timeout_s: float = PATIENCE_S) -> int:
        """The exit status."""
        status = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return status


@contextmanager
def server_process(image_s: float = 0.0, **options: Any) -> Iterator[ServerProcess]:
    """A process that serves the fake model, ready to be called."""
    flags = [f"{name}={value!r}" for name, value in options.items()]
    running = ServerProcess([sys.executable, str(FAKE_SERVER), str(image_s), *flags])
    try:
        running.address = running.wait_for("listening")["address"]
        running.wait_for("serving")
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def resident_mib(pid: int) -> float:
    """The memory that a process has now."""
    return _memory_mib(pid, "VmRSS")


def decoder_pids(pid: int | str = "self") -> list[int]:
    """The processes that decode images for servers in a process, by default this one; the oldest first."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = sorted(int(pid) for one in children for pid in one.read_text().split())
    return [pid for pid in found if b"captioner.images.worker" in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def peak_mib(pid: int) -> float:
    """The most memory that a process has had so far."""
    return _memory_mib(pid, "VmHWM")


def processor_s(pid: int) -> float:
    """The processor time that a process has used so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _memory_mib(pid: int, field: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
