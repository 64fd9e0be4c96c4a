"""A server that most tests of its services can share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from support.models import FakeModel
from support.serving import RunningServer, serve

from captioner_server import probe

if TYPE_CHECKING:
    import httpx
    from support.certificates import Authority


@pytest.fixture(autouse=True)
def patient_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_S", 30.0)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serve(FakeModel(), max_image_bytes=200_000, max_beam_size=8, max_words=30) as running:
        yield running


@pytest.fixture(scope="module")
def channel(server: RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture(scope="module")
def http_running() -> Iterator[tuple[RunningServer, httpx.Client]]:
    from support.http_serving import serve_http  # needs httpx; the wheel is tested without it

    with serve_http(FakeModel(), max_image_bytes=200_000, max_beam_size=8, max_words=30) as both:
        yield both


@pytest.fixture
def http_server(http_running: tuple[RunningServer, httpx.Client]) -> RunningServer:
    return http_running[0]


@pytest.fixture
def http(http_running: tuple[RunningServer, httpx.Client]) -> httpx.Client:
    return http_running[1]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    certificates = pytest.importorskip("support.certificates", reason="trustme makes the certificates")
    return certificates.Authority(tmp_path)
