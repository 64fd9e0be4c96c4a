"""HTTP: tokens, limits, deadlines and origins are those of the server."""

import time

import pytest
from support.bombs import scan_bomb
from support.http_serving import IMAGE, OCTETS, connect, post_later, serve_http
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import serve


@pytest.fixture(scope="module")
def endless() -> bytes:
    """An image that takes longer to decode than any test."""
    return scan_bomb(100_000)


def test_without_the_token_nothing_is_answered_but_health(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    with serve_http(FakeModel(), token_file=tmp_path / "token") as (server, http):
        right, wrong = ("authorization", "Bearer s3cret"), ("authorization", "Bearer wrong")
        for headers in ([], [wrong], [("authorization", "s3cret")], [right, wrong]):
            for answer in (
                http.post("/v1/caption", content=IMAGE, headers=headers),
                http.post("/v1/caption:stream", content=IMAGE, headers=headers),
                http.get("/v1/model", headers=headers),
            ):
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
                assert answer.headers["www-authenticate"] == "Bearer"
        assert server.metric("refused_calls_total", reason="unauthenticated") == 12
        for path in ("/healthz", "/readyz", "/openapi.json"):
            assert http.get(path).status_code == 200
        answer = http.post("/v1/caption", content=IMAGE, headers={**OCTETS, "authorization": "Bearer s3cret"})
        assert answer.status_code == 200


def test_a_full_server_says_when_to_come_again():
    model = FakeModel()
    with serve_http(model, queue_size=1) as (server, http):
        model.hold.clear()
        waiting = server.start(post_later(server))
        wait_until(lambda: server.metric("admitted_images") == 1)
        answer = http.post("/v1/caption", content=IMAGE, headers=OCTETS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "BUSY")
        assert int(answer.headers["retry-after"]) >= 1
        model.hold.set()
        assert waiting.result(PATIENCE_S).status_code == 200
        assert server.metric("refused_calls_total", reason="busy") == 1


def test_streams_are_limited():
    model = FakeModel()
    with serve_http(model, max_streams=1) as (server, http):
        model.hold.clear()
        waiting = server.start(post_later(server, "/v1/caption:stream"))
        wait_until(lambda: server.metric("in_flight_calls") == 1)
        assert http.post("/v1/caption:stream", content=IMAGE, headers=OCTETS).status_code == 429
        model.hold.set()
        assert waiting.result(PATIENCE_S).status_code == 200
        wait_until(lambda: not server.server.door.streams)  # it ends when its answer has been sent
        assert http.post("/v1/caption:stream", content=IMAGE, headers=OCTETS).status_code == 200


def test_a_deadline_ends_the_wait():
    model = FakeModel()
    with serve_http(model, max_batch_size=1) as (server, http):
        model.hold.clear()
        first = server.start(post_later(server))
        wait_until(lambda: len(model.batches) == 2)  # the warm-up and this
        decoded = server.metric("decode_seconds_count")
        second = server.start(post_later(server, "/v1/caption?timeout_s=1"))
        wait_until(lambda: server.metric("decode_seconds_count") > decoded or second.done())
        time.sleep(1.1)
        model.hold.set()
        assert first.result(PATIENCE_S).status_code == 200
        answer = second.result(PATIENCE_S)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 200


@pytest.mark.parametrize("path", ["/v1/caption", "/v1/caption:stream", "/v1/picture"])
def test_nobody_waits_past_a_deadline_for_what_has_begun(path, endless):
    model = FakeModel()
    with serve_http(model, max_decode_s=PATIENCE_S) as (_, http):
        image = endless if path.endswith("picture") else IMAGE
        model.hold.clear()
        answer = http.post(f"{path}?timeout_s=0.2", content=image, headers=OCTETS)
        model.hold.set()
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")


def test_captions_do_not_wait_for_pictures(endless):
    with (
        serve_http(FakeModel(), queue_size=1, max_decode_s=PATIENCE_S) as (server, http),
        connect(server) as peer,
    ):
        head = f"POST /v1/picture HTTP/1.1\r\nHost: x\r\nContent-Length: {len(endless)}\r\n\r\n"
        peer.sendall(head.encode() + endless)
        wait_until(lambda: server.metric("in_flight_calls") == 1)
        assert http.post("/v1/picture", content=IMAGE, headers=OCTETS).status_code == 429
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 200


@pytest.mark.parametrize("path", ["/v1/caption", "/v1/caption:stream"])
def test_a_deadline_that_has_passed_is_no_load(http, path):
    answer = http.post(f"{path}?timeout_s=0.000001", content=IMAGE, headers=OCTETS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
    assert "retry-after" not in answer.headers


def test_a_body_that_never_ends_is_given_up():
    with serve(FakeModel(), http_port=0, upload_s=0.2) as server, connect(server) as peer:
        peer.sendall(b"POST /v1/caption HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc")
        assert peer.recv(1000).startswith(b"HTTP/1.1 504")


@pytest.mark.parametrize("path", ["/v1/caption", "/v1/caption:stream"])
def test_who_hangs_up_costs_no_compute(path):
    model = FakeModel()
    with serve(model, http_port=0, max_batch_size=1) as server:
        model.hold.clear()
        first = server.start(post_later(server))
        wait_until(lambda: len(model.batches) == 2)
        with connect(server) as peer:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(IMAGE)}\r\n\r\n"
            peer.sendall(head.encode() + IMAGE)
            wait_until(lambda: server.metric("admitted_images") == 2)
        wait_until(lambda: server.metric("admitted_images") == 1)
        model.hold.set()
        assert first.result(PATIENCE_S).status_code == 200
        assert len(model.batches) == 2
        wait_until(lambda: server.metric("calls_total", method=f"POST {path}", code="CANCELLED") == 1)


def test_the_same_limits_hold_for_both_protocols(http_server, http):
    """Calls, images and their outcomes are counted in the metrics that gRPC's are counted in."""
    before = http_server.metric("images_total", outcome="ok")
    assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 200
    assert http_server.metric("images_total", outcome="ok") == before + 1
    counted = {"method": "POST /v1/caption", "code": "OK"}
    wait_until(lambda: http_server.metric("calls_total", **counted) >= 1)  # after its answer has been sent


def test_request_ids_are_the_callers_or_new(http):
    for given, kept in (("abc-1", True), ("with space", False), ("x" * 200, False)):
        answer = http.get("/v1/model", headers={"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) is kept


def test_other_origins_may_not_call(http):
    answer = http.post(
        "/v1/caption", content=IMAGE, headers={**OCTETS, "origin": "https://elsewhere.example"}
    )
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FOREIGN_ORIGIN")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_browsers_may_not_call_for_the_pages_of_other_sites(http_server, http, site):
    headers = {**OCTETS, "sec-fetch-site": site, "origin": "https://elsewhere.example"}
    before = http_server.metric("refused_calls_total", reason="foreign_origin")
    answer = http.post("/v1/caption", content=IMAGE, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FOREIGN_ORIGIN")
    assert http_server.metric("refused_calls_total", reason="foreign_origin") == before + 1
    answer = http.post("/v1/caption", content=IMAGE, headers=headers | {"sec-fetch-site": "same-origin"})
    assert answer.status_code == 200


PAGES = [
    ("localhost:8080", "http://localhost:8080", True),
    ("LocalHost:8080", "http://localhost:8080", True),
    ("captions.localhost", "http://captions.localhost", True),
    ("127.0.0.1:8080", "http://127.0.0.1:8080", True),
    ("192.168.1.5", "http://192.168.1.5", True),
    ("[::1]:8080", "http://[::1]:8080", True),
    ("localhost", "https://localhost:443", True),  # a proxy encrypts
    ("localhost:8080", "http://localhost:9090", False),
    ("localhost:8080", "http://localhost", False),
    ("localhost:8080", "http://evil.example", False),
    ("localhost:8080", "null", False),
    ("", "null", False),
    ("127.0.0.1.evil.example:8080", "http://127.0.0.1.evil.example:8080", False),
    ("localhost.evil.example", "http://localhost.evil.example", False),
]


@pytest.mark.parametrize(("host", "origin", "allowed"), PAGES)
def test_browsers_without_fetch_metadata_may_call_for_the_own_page_only(http, host, origin, allowed):
    """Browsers send no `Sec-Fetch-Site` to plain HTTP, except to localhost."""
    answer = http.post("/v1/caption", content=IMAGE, headers={**OCTETS, "host": host, "origin": origin})
    assert answer.status_code == (200 if allowed else 403)


def test_a_name_that_was_rebound_to_this_machine_is_no_name_of_the_server(http):
    """The page of evil.example calls its own host, which name servers now say is 127.0.0.1."""
    rebound = {**OCTETS, "host": "evil.example:8080", "origin": "http://evil.example:8080"}
    answer = http.post("/v1/caption", content=IMAGE, headers=rebound)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "FOREIGN_ORIGIN")
    # Behind a proxy: programs, and browsers over HTTPS.
    for headers in ({"host": "captions.example"}, {**rebound, "sec-fetch-site": "same-origin"}):
        assert http.post("/v1/caption", content=IMAGE, headers={**OCTETS, **headers}).status_code == 200


def test_a_server_for_other_machines_has_any_name():
    with serve_http(FakeModel(), host="0.0.0.0", insecure=True) as (_, http):
        for origin, status in (("http://captions.lan:8080", 200), ("http://evil.example:8080", 403)):
            headers = {**OCTETS, "host": "captions.lan:8080", "origin": origin}
            assert http.post("/v1/caption", content=IMAGE, headers=headers).status_code == status


def test_named_origins_may_call():
    with serve_http(FakeModel(), http_cors="https://a.example, https://b.example") as (_, http):
        for origin, allowed in (("https://b.example", True), ("https://c.example", False)):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            answer = http.options("/v1/caption", headers=headers)
            assert (answer.headers.get("access-control-allow-origin") == origin) is allowed
            headers = {**OCTETS, "sec-fetch-site": "cross-site", "origin": origin}
            answer = http.post("/v1/caption", content=IMAGE, headers=headers)
            assert (answer.status_code == 200) is allowed
            del headers["sec-fetch-site"]
            answer = http.post("/v1/caption", content=IMAGE, headers=headers | {"host": "b.example"})
            assert (answer.status_code == 200) is allowed


PREFLIGHT = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
NEAR = "access-control-request-private-network"


@pytest.mark.parametrize("origin", ["app://obsidian.md", "chrome-extension://abcdef", "https://a.example"])
def test_named_origins_of_apps_may_call_also_from_the_internet(origin):
    with serve_http(FakeModel(), http_cors=origin) as (_, http):
        answer = http.options("/api/generate", headers={**PREFLIGHT, NEAR: "true", "origin": origin})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["access-control-allow-private-network"] == "true"
        headers = {**OCTETS, "sec-fetch-site": "cross-site", "origin": origin}
        answer = http.post("/v1/caption", content=IMAGE, headers=headers)
        assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize("options", [{}, {"http_cors": "https://a.example"}], ids=["none", "others"])
@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        ("https://b.example", "--http-cors https://b.example"),
        ("app://obsidian.md", "--http-cors app://obsidian.md"),
        ("null", "without an origin"),
        ("file://", "without an origin"),
    ],
)
def test_pages_that_may_not_call_are_told_how_they_may(options, origin, advice):
    with serve_http(FakeModel(), **options) as (_, http):
        for answer in (
            http.options("/v1/caption", headers={**PREFLIGHT, NEAR: "true", "origin": origin}),
            http.post("/v1/caption", content=IMAGE, headers={**OCTETS, "origin": origin}),
        ):
            assert answer.status_code == 403 and advice in answer.json()["error"]["message"]
            assert not any(name.startswith("access-control") for name in answer.headers)
