"""A local Ray: nodes, processes of the command and the tables that they write."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from captioner.folder.cluster.parts import PartFolder
from captioner.folder.stores import open_filesystem
from support.patience import PATIENCE_S, wait_until
from support.processes import child_environment

parquet = pytest.importorskip("pyarrow.parquet")


def start_captioner(arguments: list[str]) -> subprocess.Popen[str]:
    environment = {**child_environment(), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "captioner", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def rows_of(out: str | Path) -> dict[str, dict]:
    filesystem, root = open_filesystem(str(out))
    parts = PartFolder(str(out)).names()
    rows = [
        r for part in parts for r in parquet.read_table(f"{root}/{part}", filesystem=filesystem).to_pylist()
    ]
    assert len(rows) == len({row["image"] for row in rows})
    return {row["image"]: row for row in rows}


def wait_long(true: Callable[[], object], what: str) -> None:
    """As long as Ray may take to start on a busy machine."""
    wait_until(true, what, 4 * PATIENCE_S)


@contextmanager
def node(*flags: str) -> Iterator[int]:
    """A node as `ray start` starts it, small; yields the id of a process that all of its own descend from."""
    small = ["--object-store-memory", "100000000", "--disable-usage-stats", "--block"]
    ports = [f"--{name}-port=0" for name in ("min-worker", "max-worker", "dashboard-agent-listen")]
    command = [Path(sys.executable).with_name("ray"), "start", *small, *ports, *flags]
    node = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, env=child_environment()
    )
    try:
        yield node.pid
    finally:
        kill(node.pid)
        node.wait()


def kill(pid: int) -> None:
    """Kill a process and all that descend from it."""
    for one in [pid, *family_of(pid)]:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def find_child(process: int, word: str) -> int | None:
    """A process that descends from `process`, with `word` in its command line."""
    return next((pid for pid, command in family_of(process).items() if word in command), None)


def family_of(process: int) -> dict[int, str]:
    """The processes that descend from `process`, with their command lines."""
    parents: dict[int, int] = {}
    commands: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
    family: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in {process, *family}} - family:
        family |= more
    return {pid: commands[pid] for pid in family if pid in commands}


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S):
        return True
    return False
