"""What is used of other packages without being documented there: it may change with any of their versions.

Each has an upper bound in pyproject.toml. To raise one, run the tests of the module named here with the new
version, and compare what the package changed in the parts below.
"""

import importlib
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

USED = {
    # captioner_server.http.port.protocol: connections with bounds on what callers send and leave unread
    "uvicorn": (
        "serve",
        "uvicorn.protocols.http.h11_impl.H11Protocol",
        "connection_made connection_lost data_received handle_events on_response_complete send_400_response",
    ),
    # captioner_server.observation.spans: spans that are messages already
    "opentelemetry-exporter-otlp-proto-grpc": (
        "traces",
        "opentelemetry.exporter.otlp.proto.grpc.trace_exporter.OTLPSpanExporter",
        "_translate_data",
    ),
    "opentelemetry-sdk": ("traces", "opentelemetry.sdk.trace.export.BatchSpanProcessor", "on_end shutdown"),
}


@pytest.mark.parametrize("package", USED)
def test_they_are_there_in_the_versions_that_are_installed(package: str) -> None:
    extra, place, parts = USED[package]
    module, _, name = place.rpartition(".")
    [wanted] = [one for text in EXTRAS[extra] if (one := Requirement(text)).name == package]
    assert any(bound.operator in ("<", "<=") for bound in wanted.specifier), f"{package} has no upper bound"
    assert wanted.specifier.contains(version(package)), f"{package} {version(package)} was not tried"
    used = getattr(importlib.import_module(module), name)
    assert not [part for part in parts.split() if not hasattr(used, part)]
