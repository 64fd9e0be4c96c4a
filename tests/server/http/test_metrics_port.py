"""The port of the metrics, which anybody who reaches it may read."""

import socket
import threading

import httpx
import pytest
from support.http_serving import IMAGE, OCTETS, serve_http
from support.models import FakeModel
from support.patience import PATIENCE_S
from support.serving import serve

from captioner_server.errors import ServerStartError


@pytest.fixture(scope="module")
def url():
    with serve(FakeModel(), metrics_port=0) as server:
        yield server.server.metrics_url


def test_metrics_are_on_loopback_unless_told_otherwise(url) -> None:
    assert url.startswith("http://127.0.0.1:")
    answer = httpx.get(url, timeout=PATIENCE_S)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "captioner_serving 1.0" in answer.text
    with serve(FakeModel(), metrics_port=0, metrics_host="::1") as server:
        assert httpx.get(server.server.metrics_url, timeout=PATIENCE_S).status_code == 200


def test_prometheus_may_ask_for_open_metrics(url) -> None:
    answer = httpx.get(
        url, headers={"accept": "application/openmetrics-text;version=1.0.0"}, timeout=PATIENCE_S
    )
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_a_version_that_is_no_number_gets_the_usual_form(url) -> None:
    accept = {"accept": "application/openmetrics-text;version=new"}
    answer = httpx.get(url, headers=accept, timeout=PATIENCE_S)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:9090", 200), ("127.0.0.1", 200), ("evil.example", 403)]
)
def test_on_loopback_they_answer_to_names_of_this_machine(url, host, status) -> None:
    assert httpx.get(url, headers={"host": host}, timeout=PATIENCE_S).status_code == status


def test_elsewhere_they_answer_to_any_name() -> None:
    with serve(FakeModel(), metrics_port=0, metrics_host="0.0.0.0") as server:
        local = server.server.metrics_url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(local, headers={"host": "captioner-1:9090"}, timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize(("options", "shown"), [({}, False), ({"metrics_callers": True}, True)])
def test_names_of_tokens_are_shown_only_if_that_is_set(tmp_path, options, shown) -> None:
    (tmp_path / "tokens").write_text("alice-of-acme a-token\n")
    with serve_http(FakeModel(), token_file=tmp_path / "tokens", metrics_port=0, **options) as (
        server,
        http,
    ):
        headers = {**OCTETS, "authorization": "Bearer a-token"}
        assert http.post("/v1/caption", content=IMAGE, headers=headers).status_code == 200
        assert ("alice-of-acme" in httpx.get(server.server.metrics_url, timeout=PATIENCE_S).text) is shown


def test_unfinished_requests_take_no_threads(url) -> None:
    place = httpx.URL(url)
    before = threading.active_count()
    held = [socket.create_connection((place.host, place.port)) for _ in range(50)]
    for one in held:
        one.sendall(b"GET /metrics HTTP/1.1\r\nX: a")
    assert httpx.get(url, timeout=PATIENCE_S).status_code == 200
    assert threading.active_count() - before < 10
    for one in held:
        one.close()


def test_a_request_with_two_kinds_of_lengths_ends_its_connection(url) -> None:
    place = httpx.URL(url)
    hidden = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % (5 + len(hidden))
    with socket.create_connection((place.host, place.port), timeout=PATIENCE_S) as bare:
        bare.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        answer = bare.makefile("rb").read()  # to the end of the connection
    assert answer.startswith(b"HTTP/1.1 400") and b"not both" in answer


def test_a_taken_port_is_said(url) -> None:
    with (
        pytest.raises(ServerStartError, match="cannot serve metrics on 127"),
        serve(FakeModel(), metrics_port=httpx.URL(url).port),
    ):
        pass


def test_a_host_that_no_name_can_be_is_said() -> None:
    with (
        pytest.raises(ServerStartError, match=r"cannot serve metrics on a\.\.b:0: the address is not usable"),
        serve(FakeModel(), metrics_port=0, metrics_host="a..b"),
    ):
        pass
