"""HTTP: callers that do it wrong on purpose."""

import dataclasses
import json
import socket
import threading
import time
import tracemalloc
from asyncio import constants
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from support.http_serving import IMAGE, OCTETS, connect, serve_http
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import server_process

from captioner_server.http.port import protocol


def test_of_a_call_that_waits_little_is_buffered():
    with (
        serve_http(FakeModel(), upload_bytes=1) as (server, _),
        connect(server) as first,
        connect(server) as bare,
    ):
        head = POST + b"Content-Length: 20000000\r\n\r\n"
        first.sendall(head)  # takes the room for messages
        wait_until(lambda: server.server.door.budget.used_bytes)
        bare.sendall(head)
        threading.Thread(target=send_for_ever, args=(bare,), daemon=True).start()
        connections = server.server._http._server.server_state.connections
        [waiting] = wait_until(lambda: [one for one in connections if one.client == bare.getsockname()])
        wait_until(lambda: waiting.flow.read_paused)
        assert len(waiting._arrived) + len(waiting.cycle.body) <= 2**16


def send_for_ever(bare: socket.socket) -> None:
    with suppress(OSError):
        while True:
            bare.sendall(bytes(2**18))


def test_any_host_is_answered(http_server):
    for head in (b"GET /nowhere HTTP/1.1\r\nHost: [\r\n", b"POST /v1/caption HTTP/1.1\r\nHost: a:b:c\r\n"):
        with connect(http_server) as bare:
            bare.sendall(head + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            assert bare.makefile("rb").readline().split()[1] in (b"404", b"400")


def exchange(http_server, request: bytes) -> bytes:
    """The answer to the bytes of a request, up to the end of the connection."""
    with connect(http_server) as bare:
        bare.sendall(request)
        return bare.makefile("rb").read()


POST = b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nContent-Type: image/png\r\nConnection: close\r\n"
SMUGGLED = b"\r\n\r\nGET /v1/model HTTP/1.1\r\nHost: a\r\n\r\n"


def test_a_request_with_two_kinds_of_lengths_ends_its_connection(http_server):
    hidden = b"GET /v1/model HTTP/1.1\r\nHost: a\r\n\r\n"
    head = POST.replace(b"Connection: close\r\n", b"") + b"Content-Length: %d\r\n" % (5 + len(hidden))
    answer = exchange(http_server, head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden)
    assert answer.startswith(b"HTTP/1.1 400") and b"not both" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0" + SMUGGLED,
        b"Transfer-Encoding: chunked, chunked\r\n\r\n0" + SMUGGLED,
        b"Transfer-Encoding: xchunked\r\n\r\n0" + SMUGGLED,
        b"Transfer-Encoding : chunked\r\n\r\n0" + SMUGGLED,
        b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcd" + SMUGGLED,
        b"Content-Length: -4\r\n\r\nabcd" + SMUGGLED,
        b"Content-Length: +4\r\n\r\nabcd" + SMUGGLED,
        b"Content-Length: 9" + b"9" * 5000 + b"\r\n\r\nabcd",
        b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabcd" + SMUGGLED,
        b"Transfer-Encoding: chunked\r\n\r\n4;" + b"x" * 100_000,
        b"X-Fold: a\r\n\tb\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=str,
)
def test_lengths_that_contradict_themselves_are_one_error(http_server, http, headers):
    answer = exchange(http_server, POST + headers)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413")), answer[:100]
    assert answer.count(b"HTTP/1.1 ") == 1  # nothing is taken for a second request
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        POST + b"a b: c\r\n\r\n",
        POST + b"x: " + b"a" * 2**16,
    ],
    ids=["0.9", "TLS", "header", "too long"],
)
def test_what_is_not_http_gets_an_error_in_json(http_server, sent):
    head, _, body = exchange(http_server, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ") and b"content-type: application/json" in head
    assert json.loads(body)["error"]["code"] == "INVALID_REQUEST"


def test_a_caller_that_resets_its_connection_while_it_is_refused_ends_nothing_else(monkeypatch):
    reset = threading.Event()
    is_arriving = protocol._Protocol.is_arriving

    def later(self):
        assert reset.wait(PATIENCE_S)
        return is_arriving(self)

    monkeypatch.setattr(protocol._Protocol, "is_arriving", later)
    with serve_http(FakeModel()) as (server, http):
        with connect(server) as bare:
            bare.sendall(POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n")
            bare.recv(1)  # closing with the rest unread resets the connection
        reset.set()
        assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "head",
    [b"GET /?%s HTTP/1.1\r\n\r\n" % (b"a" * 2**16), b"GET / HTTP/1.1\r\nCookie: %s\r\n\r\n" % (b"a" * 2**16)],
)
def test_a_head_that_is_too_large_is_told_so(http_server, head):
    answer = exchange(http_server, head)
    assert (
        answer.startswith(b"HTTP/1.1 400") and b"the head of the request has more than 32768 bytes" in answer
    )


@pytest.mark.parametrize(
    ("verb", "path"),
    [("POST", "/v1/caption"), ("GET", "/v1/model"), ("POST", "/api/show"), ("POST", "/v1/caption:stream")],
)
def test_a_query_of_thousands_of_fields_is_refused_unread(http, verb, path):
    answer = http.request(verb, f"{path}?" + "a&" * 10_000)
    assert answer.status_code == 400
    assert "the query has more than 64 fields" in answer.text


def test_handshakes_that_never_end_take_little_memory_and_time(monkeypatch, authority):
    # The server sets it for the whole process.
    monkeypatch.setattr(constants, "SSL_HANDSHAKE_TIMEOUT", constants.SSL_HANDSHAKE_TIMEOUT)
    monkeypatch.setattr(protocol, "HEAD_S", 0.5)
    certificate, key = authority.issue("server")
    with (
        serve_http(FakeModel(), tls_certificate=certificate, tls_key=key) as (server, _),
        ExitStack() as held,
    ):
        tracemalloc.start()
        held.callback(tracemalloc.stop)
        for _ in range(20):
            held.enter_context(connect(server)).sendall(b"\x16\x03\x01")
        last = held.enter_context(connect(server))
        assert last.recv(1) == b""
        assert tracemalloc.get_traced_memory()[1] < 21 * 2**17


@pytest.mark.parametrize(
    "upgrade",
    [
        b"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13",
        b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__",
    ],
)
def test_no_other_protocol_is_spoken(http_server, http, upgrade):
    with connect(http_server) as bare:
        bare.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n" + upgrade + b"\r\n\r\n")
        assert bare.makefile("rb").readline().startswith(b"HTTP/1.1 200")
    answer = exchange(http_server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
    assert not answer or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404"))
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "//etc/passwd",
        "/page.js/../../../../etc/passwd",
        "/page.js%00.html",
        "/static/page.html",
        "/\\..\\..\\etc\\passwd",
        "http://elsewhere.example/etc/passwd",
        "/%0d%0aX-Forged:%201",
    ],
)
def test_only_the_files_of_the_page_are_sent(http_server, path):
    answer = exchange(http_server, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404"), answer[:100]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"root:" not in body and b"X-Forged" not in head


def test_heads_that_come_byte_by_byte_are_given_up(http_server, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    with connect(http_server) as bare:
        bare.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
        bare.settimeout(0.02)

        def closed() -> bool:
            try:
                bare.sendall(b"x")
                return not bare.recv(1)
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(closed)


class Verbose(FakeModel):
    """Says more than the system keeps for a caller that does not read."""

    def describe(self, pixels, options=None):
        caption = super().describe(pixels, options)
        words = (dataclasses.replace(word, text="red " * 1_000_000) for word in caption.words)
        return dataclasses.replace(caption, words=tuple(words))


@contextmanager
def unread(server, path):
    """A call whose answer nobody reads."""
    with socket.socket() as bare:
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        bare.settimeout(PATIENCE_S)
        url = httpx.URL(server.server.http_url)
        bare.connect((url.host, url.port))
        head = POST.replace(b"/v1/caption", path).replace(b"Connection: close\r\n", b"")
        bare.sendall(head + b"Content-Length: %d\r\n\r\n" % len(IMAGE) + IMAGE)
        wait_until(lambda: server.metric("in_flight_calls") == 1)
        yield bare


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    model = Verbose()
    with serve_http(model, stream_idle_s=0.5) as (server, _):
        model.hold.clear()  # until it has been seen
        with unread(server, b"/v1/caption") as bare:
            connections = server.server._http._server.server_state.connections
            assert any(one.client == bare.getsockname() for one in connections)
            model.hold.set()
            wait_until(lambda: not any(one.client == bare.getsockname() for one in connections))


def test_a_stream_that_nobody_reads_holds_no_place_of_images():
    with serve_http(Verbose()) as (server, http), unread(server, b"/v1/caption:stream"):
        wait_until(lambda: server.metric("admitted_images") == 0)
        assert server.metric("in_flight_calls") == 1
        assert http.post("/v1/caption:stream", content=IMAGE, headers=OCTETS).status_code == 200
        wait_until(lambda: server.metric("in_flight_calls") == 1)  # it ends when its answer has been sent


def test_requests_that_do_not_wait_for_answers_get_one(http_server):
    get = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
    assert exchange(http_server, get * 500).count(b"HTTP/1.1 200") == 1
    with_body = POST.replace(b"Connection: close\r\n", b"Content-Length: 3\r\n") + b"\r\nabc"
    assert exchange(http_server, with_body * 50).count(b"HTTP/1.1 ") == 1
    with connect(http_server) as bare:  # one after the other, all are answered
        for _ in range(3):
            bare.sendall(get)
            answer = b""
            while not answer.endswith(b'{"status":"SERVING"}'):
                answer += bare.recv(1000)


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


def is_answered(bare: socket.socket) -> bool:
    """Whether the connection stands for another request and its answer."""
    answer = b""
    with suppress(OSError):
        bare.sendall(HEALTH)
        while b"SERVING" not in answer and (part := bare.recv(1000)):  # head and body may come apart
            answer += part
    return answer.startswith(b"HTTP/1.1 200")


def connect_and_ask(server) -> socket.socket | None:
    """A connection that has had an answer; None where this machine was too busy to send the head in time."""
    bare = connect(server)
    if is_answered(bare):
        return bare
    bare.close()
    return None


def test_a_connection_rests_between_requests_for_as_long_as_is_set(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "HEAD_S", 0.05)
        with (
            serve_http(FakeModel(), http_keep_alive_s=60) as (server, _),
            wait_until(lambda: connect_and_ask(server)) as bare,
        ):
            time.sleep(0.5)  # ten times as long as the head of a request may take
            assert is_answered(bare)
    with serve_http(FakeModel(), http_keep_alive_s=0.1) as (server, _), connect(server) as bare:
        bare.sendall(HEALTH)
        assert bare.makefile("rb").read().startswith(b"HTTP/1.1 200")  # up to the end of the connection


def test_a_caller_reads_why_its_upload_was_refused_though_it_is_still_sending():
    with serve_http(FakeModel(), max_image_bytes=10_000) as (server, http):
        for part in (b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nx"):
            with connect(server) as bare:
                bare.sendall(POST + part + bytes(500_000))
                answer = bare.makefile("rb").read()
                assert answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400")) and b"\r\n\r\n" in answer
        connections = server.server._http._server.server_state.connections
        http.close()
        wait_until(lambda: not connections)


def test_silent_connections_take_no_places_of_calls():
    with serve_http(FakeModel(), max_calls=4) as (server, http), ExitStack() as opened:
        for _ in range(8):
            opened.enter_context(connect(server)).sendall(b"GET /")
        connections = server.server._http._server.server_state.connections
        wait_until(lambda: len(connections) >= 8)
        assert http.get("/healthz").status_code == 200
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 200


def test_a_token_in_the_address_is_neither_accepted_nor_logged(tmp_path: Path):
    (tmp_path / "tokens").write_text("alice s3cret\n")
    with server_process(http_port=0, token_file=str(tmp_path / "tokens")) as running:
        [url] = [json.loads(line)["url"] for line in running.lines if '"http"' in line]
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            for name in ("token", "access_token", "authorization"):
                query = {name: "s3cret" if name != "authorization" else "Bearer s3cret"}
                for answer in (
                    client.post("/v1/caption", params=query, content=IMAGE, headers=OCTETS),
                    client.post("/v1/caption:stream", params=query, content=IMAGE, headers=OCTETS),
                    client.get("/v1/model", params=query),
                ):
                    assert answer.status_code == 401 and "s3cret" not in answer.text
                for path in ("/nowhere", "/page.js", "/healthz"):
                    client.get(path, params=query)
            bearer = {"authorization": "Bearer s3cret"}
            answer = client.post("/v1/caption?token=s3cret", content=IMAGE, headers={**OCTETS, **bearer})
            assert answer.status_code == 400 and "s3cret" not in answer.text  # an unknown option
        running.tell()
        assert running.end() == 0
        assert not any("s3cret" in line for line in running.lines)
