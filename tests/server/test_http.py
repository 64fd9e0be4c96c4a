"""Captions over HTTP: a real server on a real port, called by httpx and by bare sockets."""

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from support.engines import FakeEngine
from support.patience import PATIENCE_S, wait_until
from support.processes import server_process
from support.serving import RunningServer, make_image, serve
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.options import OPTION_SPECS, CaptionOptions

IMAGE = make_image(1)
OCTETS = {"content-type": "application/octet-stream"}
JSON = {"content-type": "application/json"}
STATUSES = {"200", "400", "401", "404", "413", "429", "503", "504"}


@contextmanager
def serve_http(engine: FakeEngine | None, **options) -> Iterator[tuple[RunningServer, httpx.Client]]:
    with serve(engine, **{"http_port": 0, "decode_workers": 1, **options}) as server:
        url = server.server.http_url
        assert url
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            yield server, client


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[RunningServer, httpx.Client]]:
    with serve_http(FakeEngine(), max_image_bytes=200_000, max_beam_size=8, max_words=30) as both:
        yield both


@pytest.fixture
def server(running: tuple[RunningServer, httpx.Client]) -> RunningServer:
    return running[0]


@pytest.fixture
def http(running: tuple[RunningServer, httpx.Client]) -> httpx.Client:
    return running[1]


def read_events(text: str) -> list[tuple[str, dict]]:
    """(kind, data) of server-sent events."""
    events = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        events.append((fields["event"], json.loads(fields["data"])))
    return events


def expected(server: RunningServer, **options) -> dict:
    """What the engine says of IMAGE, as JSON."""
    pixels = server.engine.preprocess(IMAGE)
    return server.engine.describe(pixels, CaptionOptions(**{"attention": False, **options})).to_dict()


# What is asked.


@pytest.mark.parametrize(
    "kind", ["image/png", "application/octet-stream", "application/x-www-form-urlencoded"]
)
def test_a_raw_image_is_captioned(server, http, kind):
    answer = http.post("/v1/caption", content=IMAGE, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == expected(server)
    assert "attention" not in answer.json()["words"][0]
    assert "image" not in answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert "compute" in answer.headers["server-timing"]


def test_query_parameters_are_options(server, http):
    query = {"attention": "true", "alternatives": 2, "beam_size": 4, "max_words": 3, "attention_size": "4x5"}
    answer = http.post("/v1/caption", params=query, content=IMAGE, headers=OCTETS).json()
    assert answer == expected(
        server, attention=True, alternatives=2, beam_size=4, max_words=3, attention_size=(4, 5)
    )
    assert (len(answer["words"]), len(answer["alternatives"])) == (3, 2)
    assert [len(answer["words"][0]["attention"]), len(answer["words"][0]["attention"][0])] == [4, 5]


def test_a_multipart_form_is_captioned(server, http):
    answer = http.post("/v1/caption", files={"image": ("a.png", IMAGE)}, data={"alternatives": "1"})
    assert answer.json() == expected(server, alternatives=1)


def test_a_json_body_is_captioned(server, http):
    body = {
        "image": base64.b64encode(IMAGE).decode(),
        "options": {"attention": True, "attention_size": [3, 3]},
    }
    answer = http.post("/v1/caption", json=body)
    assert answer.json() == expected(server, attention=True, attention_size=(3, 3))


@pytest.mark.parametrize(
    ("status", "code", "request_"),
    [
        (400, "NOT_AN_IMAGE", {"content": b"GIF89a but not really"}),
        (400, "NOT_AN_IMAGE", {"content": b""}),
        (400, "NOT_AN_IMAGE", {"content": IMAGE[:1000]}),
        (413, "TOO_LARGE", {"content": b"x" * 250_000}),
        (413, "TOO_LARGE", {"content": iter([b"x" * 150_000] * 2)}),
        (413, "TOO_LARGE", {"files": {"image": b"x" * 300_000}}),
        (413, "TOO_LARGE", {"files": {"image": b"x" * 210_000}}),
        (413, "TOO_LARGE", {"json": {"image": "A" * 400_000}}),
        (400, "INVALID_OPTIONS", {"params": {"beam_size": 0}}),
        (400, "INVALID_OPTIONS", {"params": {"beam_size": 9}}),
        (400, "INVALID_OPTIONS", {"params": {"max_words": 31}}),
        (400, "INVALID_OPTIONS", {"params": {"beam_size": "three"}}),
        (400, "INVALID_OPTIONS", {"params": {"attention": "yes"}}),
        (400, "INVALID_OPTIONS", {"params": {"attention_size": "axb"}}),
        (400, "INVALID_OPTIONS", {"params": {"length_normalization": "nan"}}),
        (400, "INVALID_OPTIONS", {"params": {"attention_head": 2}}),
        (400, "INVALID_OPTIONS", {"params": {"beam": 3}}),
        (400, "INVALID_REQUEST", {"params": {"timeout_s": "soon"}}),
        (400, "INVALID_REQUEST", {"params": {"timeout_s": "-1"}}),
        (400, "INVALID_REQUEST", {"content": b"<html>", "headers": {"content-type": "text/html"}}),
        (400, "INVALID_REQUEST", {"content": IMAGE, "headers": {**OCTETS, "content-encoding": "gzip"}}),
        (400, "INVALID_REQUEST", {"files": {"photo": IMAGE}}),
        (400, "INVALID_REQUEST", {"files": [("image", IMAGE), ("image", IMAGE)]}),
        (400, "INVALID_REQUEST", {"files": {"image": IMAGE}, "data": {str(n): "" for n in range(80)}}),
        (400, "INVALID_OPTIONS", {"files": {"image": IMAGE}, "data": {"no": "1"}}),
        (400, "INVALID_REQUEST", {"content": b"--x", "headers": {"content-type": "multipart/form-data"}}),
        (400, "INVALID_REQUEST", {"json": {"image": "not base64!"}}),
        (400, "INVALID_REQUEST", {"json": {"picture": ""}}),
        (400, "INVALID_REQUEST", {"json": {"image": "", "more": 1}}),
        (400, "INVALID_REQUEST", {"json": [1]}),
        (400, "INVALID_REQUEST", {"json": {"image": "", "options": [1]}}),
        (400, "INVALID_OPTIONS", {"json": {"image": "", "options": {"beam_size": "3"}}}),
        (400, "INVALID_OPTIONS", {"json": {"image": "", "options": {"beam": 3}}}),
        (
            400,
            "INVALID_REQUEST",
            {"content": b"[" * 100_000, "headers": JSON},
        ),
        (400, "INVALID_REQUEST", {"content": b'{"image', "headers": JSON}),
        (400, "INVALID_REQUEST", {"content": b"\xff", "headers": JSON}),
    ],
)
@pytest.mark.parametrize("path", ["/v1/caption", "/v1/caption:stream"])
def test_what_is_asked_wrongly_is_refused_with_a_reason(http, path, status, code, request_):
    if "params" in request_:
        request_ = {"content": IMAGE, "headers": OCTETS, **request_}
    elif set(request_) == {"content"}:
        content = request_["content"]
        content = content if isinstance(content, bytes) else iter([b"x" * 150_000] * 2)
        request_ = {"content": content, "headers": OCTETS}
    answer = http.post(path, **request_)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"]
    assert "Traceback" not in answer.text


def test_a_long_name_is_not_echoed(http):
    answer = http.post("/v1/caption", params={"x" * 10_000: "1"}, content=IMAGE, headers=OCTETS)
    assert answer.status_code == 400
    assert len(answer.text) < 1500


def test_unknown_paths_and_methods_are_named(http):
    assert http.get("/v2/caption").json()["error"]["code"] == "NOT_FOUND"
    answer = http.get("/v1/caption")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


# Word by word.


def test_a_stream_has_every_word_and_last_the_searched_caption(server, http):
    query = {"attention": "true", "alternatives": 2}
    answer = http.post("/v1/caption:stream", params=query, content=IMAGE, headers=OCTETS)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = read_events(answer.text)
    assert [kind for kind, _ in events] == ["word"] * 5 + ["caption"]
    greedy = expected(server, attention=True, beam_size=1)
    assert [data for _, data in events[:-1]] == greedy["words"]
    assert events[-1][1] == expected(server, attention=True, alternatives=2)
    assert len(events[-1][1]["alternatives"]) == 2


def test_a_greedy_stream_is_not_searched_again(server, http):
    batches = len(server.engine.batches)
    answer = http.post("/v1/caption:stream?beam_size=1", content=IMAGE, headers=OCTETS)
    assert read_events(answer.text)[-1] == ("caption", expected(server, beam_size=1))
    assert len(server.engine.batches) == batches


def test_words_come_while_others_are_decoded():
    engine = FakeEngine()
    with serve_http(engine) as (_, http):
        engine.first_word_read.clear()
        events = []
        with http.stream("POST", "/v1/caption:stream", content=IMAGE, headers=OCTETS) as answer:
            for line in answer.iter_lines():
                if line.startswith("event:"):
                    events.append(line)
                    engine.first_word_read.set()
        assert events == ["event: word"] * 5 + ["event: caption"]


def test_what_goes_wrong_after_the_first_word_is_an_event():
    class Failing(FakeEngine):
        def caption_pixels(self, pixels, options=None):
            if self.streams > 1:  # after the warm-up
                raise ValueError("secret")
            return super().caption_pixels(pixels, options)

    with serve_http(Failing()) as (server, http):
        answer = http.post("/v1/caption:stream", content=IMAGE, headers=OCTETS)
        kind, data = read_events(answer.text)[-1]
        assert (kind, data["error"]["code"]) == ("error", "INTERNAL")
        assert "secret" not in answer.text
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 500
        counted = {"method": "POST /v1/caption:stream", "code": "INTERNAL"}
        wait_until(lambda: server.metric("calls_total", **counted) == 1)  # after its answer has been sent


# Who may come in.


def test_without_the_token_nothing_is_answered_but_health(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    with serve_http(FakeEngine(), token_file=tmp_path / "token") as (_, http):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            for answer in (
                http.post("/v1/caption", content=IMAGE, headers=headers),
                http.post("/v1/caption:stream", content=IMAGE, headers=headers),
                http.get("/v1/model", headers=headers),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert http.get(path).status_code == 200
        answer = http.post("/v1/caption", content=IMAGE, headers={**OCTETS, "authorization": "Bearer s3cret"})
        assert answer.status_code == 200


def test_a_full_server_says_when_to_come_again():
    engine = FakeEngine()
    with serve_http(engine, queue_size=1) as (server, http):
        engine.hold.clear()
        waiting = server.start(post_later(server))
        wait_until(lambda: server.metric("admitted_images") == 1)
        answer = http.post("/v1/caption", content=IMAGE, headers=OCTETS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "BUSY")
        assert int(answer.headers["retry-after"]) >= 1
        engine.hold.set()
        assert waiting.result(PATIENCE_S).status_code == 200


def test_streams_are_limited():
    engine = FakeEngine()
    with serve_http(engine, max_streams=1) as (server, http):
        engine.hold.clear()
        waiting = server.start(post_later(server, "/v1/caption:stream"))
        wait_until(lambda: server.metric("in_flight_calls") == 1)
        assert http.post("/v1/caption:stream", content=IMAGE, headers=OCTETS).status_code == 429
        engine.hold.set()
        assert waiting.result(PATIENCE_S).status_code == 200
        assert http.post("/v1/caption:stream", content=IMAGE, headers=OCTETS).status_code == 200


def test_a_deadline_ends_the_wait():
    engine = FakeEngine()
    with serve_http(engine, max_batch_size=1) as (server, http):
        engine.hold.clear()
        first = server.start(post_later(server))
        wait_until(lambda: len(engine.batches) == 2)  # the warm-up and this
        decoded = server.metric("decode_seconds_count")
        second = server.start(post_later(server, "/v1/caption?timeout_s=1"))
        wait_until(lambda: server.metric("decode_seconds_count") > decoded)
        time.sleep(1.1)
        engine.hold.set()
        assert first.result(PATIENCE_S).status_code == 200
        answer = second.result(PATIENCE_S)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 200


def test_a_body_that_never_ends_is_given_up():
    with serve(FakeEngine(), http_port=0, upload_s=0.2) as server, connect(server) as peer:
        peer.sendall(b"POST /v1/caption HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        assert peer.recv(1000).startswith(b"HTTP/1.1 504")


@pytest.mark.parametrize("path", ["/v1/caption", "/v1/caption:stream"])
def test_who_hangs_up_costs_no_compute(path):
    engine = FakeEngine()
    with serve(engine, http_port=0, max_batch_size=1) as server:
        engine.hold.clear()
        first = server.start(post_later(server))
        wait_until(lambda: len(engine.batches) == 2)
        with connect(server) as peer:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(IMAGE)}\r\n\r\n"
            peer.sendall(head.encode() + IMAGE)
            wait_until(lambda: server.metric("admitted_images") == 2)
        wait_until(lambda: server.metric("admitted_images") == 1)
        engine.hold.set()
        assert first.result(PATIENCE_S).status_code == 200
        assert len(engine.batches) == 2
        wait_until(lambda: server.metric("calls_total", method=f"POST {path}", code="CANCELLED") == 1)


def test_the_same_limits_hold_for_both_protocols(server, http):
    """Calls, images and their outcomes are counted in the metrics that gRPC's are counted in."""
    before = server.metric("images_total", outcome="ok")
    assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 200
    assert server.metric("images_total", outcome="ok") == before + 1
    assert server.metric("calls_total", method="POST /v1/caption", code="OK") >= 1


def test_request_ids_are_the_callers_or_new(http):
    for given, kept in (("abc-1", True), ("with space", False), ("x" * 200, False)):
        answer = http.get("/v1/model", headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) is kept


def test_other_origins_may_not_call(http):
    answer = http.post(
        "/v1/caption", content=IMAGE, headers={**OCTETS, "origin": "https://elsewhere.example"}
    )
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_named_origins_may_call():
    with serve_http(FakeEngine(), http_cors="https://a.example, https://b.example") as (_, http):
        for origin, allowed in (("https://b.example", True), ("https://c.example", False)):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            answer = http.options("/v1/caption", headers=headers)
            assert (answer.headers.get("access-control-allow-origin") == origin) is allowed


# What is said of the server.


def test_the_model_says_what_it_is(server, http):
    model = http.get("/v1/model").json()
    assert model["model"] == server.engine.model == f"{model['name']}@{model['digest']}"
    assert tuple(model["grid"]) == server.engine.grid
    assert (model["device"], model["provider"], model["precision"]) == ("cpu", "FakeProvider", "float32")
    assert model["defaults"]["beam_size"] == 3
    assert (model["max_image_bytes"], model["max_beam_size"], model["max_words"]) == (200_000, 8, 30)
    assert model["calibration"]["event"] == "the caption is any good"
    assert (model["served_as"], model["models"]) == ("default", ["default"])


def test_the_interface_is_described(http):
    described = http.get("/openapi.json").json()
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(described)
    for path in ("/v1/caption", "/v1/caption:stream"):
        names = {parameter["name"] for parameter in described["paths"][path]["post"]["parameters"]}
        assert names == {*OPTION_SPECS, "timeout_s", "model"}
        assert {"200", "400", "401", "404", "413", "429", "503", "504"} == set(
            described["paths"][path]["post"]["responses"]
        )


def test_a_server_that_loads_is_alive_but_not_ready():
    with serve_http(None) as (_, http):
        assert http.get("/healthz").status_code == 200
        for answer in (http.get("/readyz"), http.get("/v1/model"), http.post("/v1/caption", content=IMAGE)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "NOT_SERVING")
            assert int(answer.headers["retry-after"]) >= 1


def test_draining_finishes_what_was_accepted():
    engine = FakeEngine()
    with serve_http(engine) as (server, http):
        engine.hold.clear()
        waiting = server.start(post_later(server))
        wait_until(lambda: server.metric("in_flight_calls") == 1)
        draining = server.start(server.server.drain())
        wait_until(lambda: http.get("/readyz").status_code == 503)
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 503
        engine.hold.set()
        assert waiting.result(PATIENCE_S).status_code == 200
        assert draining.result(PATIENCE_S)
        with pytest.raises(httpx.TransportError):
            http.get("/healthz")


def test_before_it_drains_a_server_sends_callers_elsewhere_and_still_answers():
    with serve_http(FakeEngine(), lame_duck_s=600) as (server, http):
        draining = server.start(server.server.drain())
        wait_until(lambda: http.get("/readyz").status_code == 503)
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 200
        draining.cancel()


def test_there_is_no_http_unless_it_is_asked_for():
    with serve(FakeEngine()) as server:
        assert server.server.http_url is None


def test_a_process_says_where_http_is_served():
    with server_process(http_port=0) as running:
        [url] = [json.loads(line)["url"] for line in running.lines if '"http"' in line]
        answer = httpx.post(f"{url}/v1/caption", content=IMAGE, headers=OCTETS, timeout=PATIENCE_S)
        assert answer.status_code == 200
        running.tell()
        assert running.end() == 0


async def post_later(server: RunningServer, path: str = "/v1/caption") -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.server.http_url, timeout=PATIENCE_S) as client:
        return await client.post(path, content=IMAGE, headers=OCTETS)


def connect(server: RunningServer) -> socket.socket:
    url = httpx.URL(server.server.http_url)
    return socket.create_connection((url.host, url.port), timeout=PATIENCE_S)


# Callers that do it wrong on purpose.


@pytest.mark.parametrize(
    "body",
    [
        {"image": "", "options": {"\ud800" * 3000: 1}},
        {"image": "", "options": {"include": ["\ud800"]}},
        {"image": "", "\udfff": 1},
        {"image": "\ud800"},
    ],
)
def test_halves_of_characters_are_refused_like_anything_else(http, body):
    answer = http.post("/v1/caption", content=json.dumps(body), headers=JSON)
    assert answer.status_code == 400 and len(answer.content) < 2000
    assert answer.json()["error"]["message"].isprintable()


def test_any_host_is_answered(server):
    for head in (b"GET /nowhere HTTP/1.1\r\nHost: [\r\n", b"POST /v1/caption HTTP/1.1\r\nHost: a:b:c\r\n"):
        with connect(server) as bare:
            bare.sendall(head + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            assert bare.makefile("rb").readline().split()[1] in (b"404", b"400")


def test_a_body_in_tiny_chunks_is_read_in_small_pieces(server, monkeypatch):
    pieces = []
    plain = H11Protocol.data_received

    def watched(self, data):
        pieces.append(len(data))
        plain(self, data)

    monkeypatch.setattr(H11Protocol, "data_received", watched)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in IMAGE)
    with connect(server) as bare:
        head = b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nContent-Type: image/png\r\nConnection: close\r\n"
        bare.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        answer = bare.makefile("rb").read()
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == expected(server)
    assert sum(pieces) >= len(chunks) and max(pieces) <= 4096
