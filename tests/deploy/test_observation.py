"""Alerts and dashboard: every metric in them exists, every alert is explained and tested."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from captioner_server.http.dialects.operations import dialect_operations
from captioner_server.intake.ticket import Kind
from captioner_server.observation.metrics import Metrics
from captioner_server.options import ServerOptions

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "captioner.json").read_text())
_NAME = re.compile(r"\b(?:captioner|process|python)[:_][\w:]+")


def rules() -> Iterator[dict[str, str]]:
    for group in RULES["groups"]:
        yield from group["rules"]


def texts(value: object) -> Iterator[str]:
    """Every string in a piece of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in texts(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in texts(item))


def exported() -> set[str]:
    """Names of all samples that a server can export, and of what the rules record."""
    metrics = Metrics()
    metrics.count_decoder_restarts(lambda: 0)
    names = set()
    for family in metrics.registry.collect():
        suffixes = {
            "counter": ("_total",),
            "histogram": ("_bucket", "_sum", "_count"),
        }.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names | {rule["record"] for rule in rules() if "record" in rule}


def test_every_metric_of_rules_and_dashboard_is_exported() -> None:
    used = {name for rule in rules() for name in _NAME.findall(rule["expr"])}
    shown = {name for text in texts(DASHBOARD) for name in _NAME.findall(text)}
    assert len(used) > 10
    assert len(shown) > 15
    assert used | shown <= exported()


def test_every_metric_of_the_server_is_shown_or_raises_an_alert() -> None:
    used = {name for rule in rules() for name in _NAME.findall(rule["expr"])}
    used |= {name for text in texts(DASHBOARD) for name in _NAME.findall(text)}
    registry = Metrics().registry
    families = {family.name for family in registry.collect() if family.name.startswith("captioner")}
    unused = {name for name in families if not any(one.startswith(name) for one in used)}
    assert not unused


def test_slow_calls_of_every_protocol_are_seen() -> None:
    methods = {one.method for one in dialect_operations(None, ServerOptions()) if one.kind is Kind.IMAGE}
    methods |= {"POST /v1/caption", "POST /v1/picture"}
    methods |= {"/captioner.v1.CaptionService/Caption", "/inference.GRPCInferenceService/ModelInfer"}
    words = {"POST /v1/caption:stream", "/captioner.v1.CaptionService/StreamCaption", "GET /v1/model"}
    found = [
        re.compile(pattern)
        for text in (*(rule["expr"] for rule in rules()), *texts(DASHBOARD))
        for pattern in re.findall(r'method=~"(\.[^"]*)"', text)
    ]
    assert len(found) == 5 and len(methods) > 6
    for one in found:
        assert all(map(one.fullmatch, methods)) and not any(map(one.fullmatch, words))


def test_every_documented_metric_is_exported() -> None:
    documented = set(re.findall(r"`(captioner_\w+)", (ROOT / "docs" / "serving.md").read_text()))
    documented -= {"captioner_client", "captioner_server"}
    families = {name.removesuffix("_bucket") for name in exported()}
    assert documented <= families


def test_every_alert_is_explained_and_tested() -> None:
    explained = (ROOT / "docs" / "operations.md").read_text()
    tested = (PROMETHEUS / "rules.test.yml").read_text()
    alerts = [rule["alert"] for rule in rules() if "alert" in rule]
    for alert in alerts:
        assert f"### {alert}\n" in explained
        assert f"alertname: {alert}\n        exp_alerts" in tested, f"no test expects {alert}"
    assert set(re.findall(r"^### (Captioner\w+)$", explained, re.MULTILINE)) == set(alerts)


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules.test.yml"],
    ],
    ids=" ".join,
)
def test_prometheus_accepts_its_files(arguments) -> None:
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    done = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_exported_follows_the_conventions_of_prometheus() -> None:
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    from prometheus_client import generate_latest

    done = subprocess.run(
        ["promtool", "check", "metrics"], input=generate_latest(Metrics().registry), capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
