"""Programs in front of a server, for `attack.py`: HAProxy as in `deploy/`, and others to compare it with."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from common import free_port, pinned

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
_CONFIGURATIONS = Path(__file__).with_name("fronts")
_START_S = 20


@contextmanager
def haproxy(server: tuple[int, ...], folder: Path) -> Iterator[tuple[str, str]]:
    from support import topology

    with topology.haproxy([(server[0], server[1])], folder) as (address, _):
        yield address, address


@contextmanager
def nginx(server: tuple[int, ...], folder: Path) -> Iterator[tuple[str, str]]:
    ports = free_port(), free_port()
    text = (_CONFIGURATIONS / "nginx.conf").read_text().replace("FOLDER", str(folder))
    for given, upstream, port in zip((50051, 8080), server, ports, strict=True):
        text = text.replace(f"servers:{given}", f"127.0.0.1:{upstream}")
        text = text.replace(f"listen 127.0.0.1:{given}", f"listen 127.0.0.1:{port}")
    (folder / "nginx.conf").write_text(text)
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with _running([program, "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")], ports):
        yield f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"


@contextmanager
def envoy(server: tuple[int, ...], folder: Path) -> Iterator[tuple[str, str]]:
    import yaml

    port = free_port()
    text = (_CONFIGURATIONS / "envoy.yaml").read_text()
    text = text.replace("address: 0.0.0.0, port_value: 50051", f"address: 127.0.0.1, port_value: {port}")
    for given, upstream in zip((50051, 8080), server, strict=True):
        text = text.replace(
            f"address: servers, port_value: {given}", f"address: 127.0.0.1, port_value: {upstream}"
        )
    (folder / "envoy.yaml").write_text(yaml.safe_dump(yaml.safe_load(text)))
    program = str(Path(sys.executable).with_name("envoy"))
    command = [program, "-c", str(folder / "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1"]
    with _running([*command, "--log-level", "critical"], (port,)):
        time.sleep(3)  # it asks for the server's health
        yield f"127.0.0.1:{port}", f"127.0.0.1:{port}"


FRONTS: dict[str, Callable[[tuple[int, ...], Path], AbstractContextManager[tuple[str, str]]]] = {
    "haproxy": haproxy,
    "nginx": nginx,
    "envoy": envoy,
}


@contextmanager
def fronted(name: str, places: tuple[str, str], core: int) -> Iterator[tuple[str, str]]:
    """The addresses, for gRPC and HTTP, of a program in front of a server with such addresses, on a core."""
    ports = tuple(int(place.rpartition(":")[2]) for place in places)
    with TemporaryDirectory() as folder, ExitStack() as stack:
        with pinned({core}):
            addresses = stack.enter_context(FRONTS[name](ports, Path(folder)))
        yield addresses


@contextmanager
def _running(command: list[str], ports: tuple[int, ...]) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for port in ports:
                _wait(port)
            yield
        finally:
            process.terminate()


def _wait(port: int) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise SystemExit("the front does not start")
