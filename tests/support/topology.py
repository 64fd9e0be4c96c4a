"""Envoy and Prometheus as processes, with the files of `deploy/` moved to free ports of this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.patience import PATIENCE_S, free_port, wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ENVOY = Path(sys.executable).with_name("envoy")
PROMETHEUS = shutil.which("prometheus")


def fetch(url: str) -> str:
    """A page, empty while nobody serves it."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:
            return page.read().decode()
    except OSError:
        return ""


@contextmanager
def running(command: Sequence[str | Path], log: Path) -> Iterator[None]:
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def envoy(servers: Sequence[int], folder: Path) -> Iterator[tuple[str, str]]:
    """Balance over servers on these ports of this machine; gives its address and that of its metrics."""
    text = (DEPLOY / "envoy" / "envoy.yaml").read_text()
    grpc, metrics, admin = free_port(), free_port(), free_port()
    for port, free in ((50051, grpc), (9902, metrics), (9901, admin)):
        text = text.replace(f"port_value: {port}", f"port_value: {free}")
    config = yaml.safe_load(text.replace("0.0.0.0", "127.0.0.1"))
    cluster = config["static_resources"]["clusters"][0]
    cluster["load_assignment"]["endpoints"] = [
        {
            "lb_endpoints": [
                {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
                for port in servers
            ]
        }
    ]
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump(config))
    command = [ENVOY, "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn"]
    with running(command, folder / "envoy.log"):
        healthy = f'cluster_name="captioner"}} {len(servers)}'
        url = f"http://127.0.0.1:{metrics}/stats/prometheus"
        wait_until(
            lambda: f"envoy_cluster_membership_healthy{{envoy_{healthy}" in fetch(url),
            "Envoy finds every server healthy",
        )
        yield f"127.0.0.1:{grpc}", url


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
