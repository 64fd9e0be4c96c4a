"""HAProxy and Prometheus as processes, with the files of `deploy/` moved to free ports of this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.patience import PATIENCE_S, free_port, wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
HAPROXY_CONFIGURATION = DEPLOY / "haproxy" / "haproxy.cfg"
PROMETHEUS = shutil.which("prometheus")


def fetch(url: str) -> str:
    """A page, empty while nobody serves it."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
            return page.read().decode()
    except OSError:
        return ""


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    added = {**os.environ, **(environment or {})}
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=added) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def haproxy_configuration(servers: Sequence[tuple[int, int]], folder: Path, moved: Mapping[int, int]) -> Path:
    """That of `deploy/`, with servers of these ports for gRPC and HTTP, and some of its own ports moved."""
    text = HAPROXY_CONFIGURATION.read_text()
    for given, free in moved.items():
        text = text.replace(f"bind :{given}", f"bind 127.0.0.1:{free}")
    for number, name in enumerate(("servers:50051", "servers:8080")):
        template = re.search(rf"server-template server \d+ {name}(.*)", text)
        assert template
        places = [f"127.0.0.1:{ports[number]}{template[1]}" for ports in servers]
        lines = [f"server server{count} {place}" for count, place in enumerate(places)]
        text = text.replace(template[0], "\n    ".join(lines))
    path = folder / "haproxy.cfg"
    path.write_text(text)
    return path


@contextmanager
def haproxy(servers: Sequence[tuple[int, int]], folder: Path) -> Iterator[tuple[str, str]]:
    """Balance over servers with these ports for gRPC and HTTP; gives its address, and that of its metrics."""
    with haproxy_process(servers, folder, {}) as (address, metrics, _):
        yield address, metrics


@contextmanager
def haproxy_process(
    servers: Sequence[tuple[int, int]], folder: Path, environment: Mapping[str, str]
) -> Iterator[tuple[str, str, subprocess.Popen[bytes]]]:
    """As `haproxy`, with more variables in its environment; gives its process too, which SIGUSR2 reloads."""
    assert HAPROXY
    port, metrics = free_port(), free_port()
    configuration = haproxy_configuration(servers, folder, {50051: port, 8404: metrics})
    command = [HAPROXY, "-W", "-db", "-f", configuration]
    with running(command, folder / "haproxy.log", environment) as process:
        up = f'haproxy_backend_active_servers{{proxy="grpc"}} {len(servers)}'
        wait_until(lambda: up in fetch(f"http://127.0.0.1:{metrics}/metrics"), "HAProxy finds every server")
        yield f"127.0.0.1:{port}", f"http://127.0.0.1:{metrics}/metrics", process


class Prometheus:
    """Its HTTP API."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}"

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query; raises for what Prometheus does not understand."""
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
            found: list[dict[str, Any]] = json.load(page)["data"]["result"]
        return found

    def value(self, expression: str) -> float:
        """The one sample of a query, 0 where there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else 0.0

    def rules(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=PATIENCE_S) as page:
            groups = json.load(page)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@contextmanager
def prometheus(targets: Sequence[int], folder: Path) -> Iterator[Prometheus]:
    """Scrape servers every second, and evaluate the rules as often."""
    assert PROMETHEUS
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus" / "rules.yml")]
    addresses = [f"127.0.0.1:{port}" for port in targets]
    config["scrape_configs"] = [{"job_name": "captioner", "static_configs": [{"targets": addresses}]}]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        PROMETHEUS,
        f"--config.file={path}",
        f"--web.listen-address={address}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
    ]
    with running(command, folder / "prometheus.log"):
        wait_until(lambda: fetch(f"http://{address}/-/ready"), "Prometheus is ready")
        yield Prometheus(address)
