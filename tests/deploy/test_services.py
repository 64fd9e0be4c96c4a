"""The systemd unit and HAProxy's configuration, checked by these programs; the names in the collector's."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import topology

from captioner_server.options import ServerOptions
from captioner_server.server import _MAX_CONNECTION_CALLS

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "deploy" / "systemd" / "captioner.service"
COLLECTED_S = 5.0
"""How long OpenTelemetry collects spans before it sends them (OTEL_BSP_SCHEDULE_DELAY)."""


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True)


def test_systemd_accepts_the_unit(tmp_path) -> None:
    unit = tmp_path / "captioner.service"
    unit.write_text(UNIT.read_text().replace("/opt/captioner/bin/captioner", sys.executable))
    done = analyze("verify", unit)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip()


def test_the_unit_is_hardened() -> None:
    done = analyze("security", "--offline=true", UNIT)
    exposure = re.search(r"Overall exposure level for captioner.service: ([\d.]+)", done.stdout)
    assert exposure, done.stdout + done.stderr
    assert float(exposure[1]) < 2.5


@pytest.mark.skipif(topology.HAPROXY is None, reason="haproxy is not installed")
def test_haproxy_accepts_its_configuration(tmp_path: Path) -> None:
    assert topology.HAPROXY
    configuration = topology.haproxy_configuration([(50051, 8080)], tmp_path, {})
    done = subprocess.run([topology.HAPROXY, "-c", "-f", configuration], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_haproxy_sends_no_more_to_a_connection_than_a_server_takes() -> None:
    text = topology.HAPROXY_CONFIGURATION.read_text()
    most = re.search(r"tune.h2.max-concurrent-streams (\d+)", text)
    assert most and int(most[1]) <= _MAX_CONNECTION_CALLS


def test_the_names_in_the_collectors_configuration() -> None:
    """No registry has the collector itself, which would check more."""
    config = yaml.safe_load((ROOT / "deploy" / "otel" / "collector.yaml").read_text())
    service = config["service"]
    [pipeline] = service["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert sorted(config[kind]) == sorted(pipeline[kind]), f"{kind} are defined and used"
    assert service["extensions"] == list(config["extensions"])
    assert pipeline["processors"][0] == "memory_limiter" and pipeline["processors"][-1] == "batch"
    for policy in config["processors"]["tail_sampling"]["policies"]:
        assert set(policy) == {"name", "type", policy["type"]}
    endpoint = config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    port = endpoint.rpartition(":")[2]
    composition = (ROOT / "docker-compose.yml").read_text()
    assert f"http://collector:{port}" in composition and "\n  collector:\n" in composition
    network = yaml.safe_load((ROOT / "deploy/kubernetes/base/network.yaml").read_text())
    assert {"port": int(port)} in network["spec"]["egress"][0]["ports"]


def test_what_the_collector_keeps_is_what_servers_send() -> None:
    spans = (ROOT / "server/captioner_server").rglob("*.py")
    sent = {name for file in spans for name in re.findall(r'"(captioner\.\w+)"', file.read_text())}
    config = yaml.safe_load((ROOT / "deploy" / "otel" / "collector.yaml").read_text())
    policies = config["processors"]["tail_sampling"]["policies"]
    [key] = [policy["numeric_attribute"]["key"] for policy in policies if "numeric_attribute" in policy]
    assert key in sent


def test_the_collector_decides_after_the_longest_call_has_ended() -> None:
    """Else it would drop most of the slowest calls: what it has of them by then is neither slow nor wrong."""
    config = yaml.safe_load((ROOT / "deploy" / "otel" / "collector.yaml").read_text())
    wait = config["processors"]["tail_sampling"]["decision_wait"]
    assert float(wait.removesuffix("s")) > ServerOptions().max_wait_s + COLLECTED_S
