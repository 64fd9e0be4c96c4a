"""HTTP: bodies that are wrong on purpose."""

import base64
import gzip
import json
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from support.http_serving import IMAGE, JSON, connect, expected, serve_http
from support.models import FakeModel
from support.patience import PATIENCE_S

from captioner_server.http import off_loop


def test_a_content_type_of_thousands_of_parameters_is_refused_unread(http):
    kind = "multipart/form-data; boundary=a" + ";" * 30_000
    answer = http.post("/v1/caption", content=b"--a--\r\n", headers={"content-type": kind})
    assert answer.status_code == 400
    assert "the content-type has more than 1024 bytes" in answer.text


@pytest.mark.parametrize(
    ("threads", "path", "status"),
    [("off-loop", "/v1/caption", 200), ("off-loop", "/metrics", 200), ("picture", "/v1/picture", 429)],
)
def test_a_lack_of_threads_is_no_defect(monkeypatch, threads, path, status):
    """The thread for large bodies and metrics exists from the start. Without one for pictures, the call may
    be tried again."""
    start = threading.Thread.start

    def refuse(self):
        if self.name.startswith((threads, "asyncio")):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(off_loop, "_THREAD", ThreadPoolExecutor(1, "off-loop"))
    with serve_http(FakeModel(), metrics_port=0) as (server, http):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            if path == "/metrics":
                answer = httpx.get(server.server.metrics_url, timeout=PATIENCE_S)
            else:
                image = base64.b64encode(IMAGE + bytes(100_000)).decode()
                answer = http.post(path, json={"image": image})
        assert answer.status_code == status


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


LONG = "x" * 20_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/caption", {LONG: 1, "image": ""}),
        ("/v1/caption", {"image": "", "options": {LONG: 1}}),
        ("/api/generate", {"model": LONG, "prompt": "", "images": [""]}),
        ("/api/show", {"model": LONG}),
    ],
)
def test_long_texts_in_odd_places_are_named_as_such(http, path, body):
    answer = http.post(path, content=json.dumps(body), headers=JSON)
    assert answer.status_code in (400, 404)
    assert "'a text of 20000 bytes'" in answer.text and "@" not in answer.text


EMOJI = "\N{GRINNING FACE}"


@pytest.mark.parametrize("start", ["", EMOJI, r"\ud83d\ude00", r"\/"], ids=ascii)
def test_a_json_body_takes_no_more_memory_than_its_size_and_that_of_the_image(start):
    """Python stores a text with one emoji in four bytes a character."""
    size = 8 * 2**20
    with serve_http(FakeModel(), max_image_bytes=size) as (server, _), connect(server) as bare:
        body = b'{"image":"' + start.encode() + b"A" * (size - 100) + b'"}'
        head = (
            b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n"
        )
        tracemalloc.start()
        try:
            bare.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body))
            bare.sendall(body)
            assert bare.makefile("rb").read().startswith(b"HTTP/1.1 400")  # not an image
            assert tracemalloc.get_traced_memory()[1] < 4 * size
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    "path", ["/v1/caption", "/api/generate", "/api/show", "/v1/chat/completions", "/v1/responses"]
)
def test_compressed_bodies_are_refused_by_every_call(http, path):
    headers = {**JSON, "content-encoding": "gzip"}
    answer = http.post(path, content=gzip.compress(b'{"image": "QUJD"}'), headers=headers)
    assert answer.status_code == 400 and "a compressed body is not accepted" in answer.text


@pytest.mark.parametrize(
    "escapes",
    [{}, {"/": r"\/"}, {"+": r"\u002B", "/": r"\u002f", "=": r"\u003d"}],
    ids=["plain", "PHP", "HTML-safe"],
)
def test_encoders_of_json_may_escape_what_they_like(http_server, http, escapes):
    # With bytes behind the picture whose base64 has each of the characters.
    image = IMAGE + (b"\xfb\xff\xfe" + bytes(9)) * 5_000
    image += bytes((1 - len(image)) % 3)
    text = base64.b64encode(image).decode()
    for mark, escape in escapes.items():
        assert mark in text
        text = text.replace(mark, escape)
    body = f'{{"options": {{"max_words": 2}}, "image": "{text}"}}'
    answer = http.post("/v1/caption", content=body, headers=JSON)
    assert answer.json() == expected(http_server, max_words=2)
    body = body.replace('"max_words": 2', f'"include": ["{EMOJI}"]')  # not a word that the model knows
    error = http.post("/v1/caption", content=body, headers=JSON).json()["error"]
    assert error["field"] == "options.include" and EMOJI in error["message"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"image": "@", "options": {"include": ["A" * 70_000]}}, "the longest text"),
        ({"image": "QUJD", "options": {"include": ["A" * 70_000]}}, "the longest text"),
        ({"image": "A" * 70_000, "options": {"include": ["A" * 69_000]}}, "the longest text"),
        ({"image": "A" * 70_000, "options": {"include": ["A" * 9_000] * 8}}, "beside image"),
        ({"image": '"' * 70_000}, "more than 64 values"),
        ({"image": "\\/" * 70_000}, "not base64"),
        ({"image": r"\u002b" * 20_000}, "not base64"),
        ({"options": {"image": "A" * 70_000}}, "must be"),
    ],
    ids=range(8),
)
def test_long_json_bodies_are_checked_as_short_ones_are(http, body, reason):
    answer = http.post("/v1/caption", content=json.dumps(body), headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"][:8]) == (400, "INVALID_")
    assert reason in str(answer.json()["error"])


def test_large_json_bodies_are_parsed_one_at_a_time(http_server, monkeypatch):
    active, most = 0, 0

    def parse(body):
        nonlocal active, most
        active += 1
        most = max(most, active)
        time.sleep(0.05)
        active -= 1
        return IMAGE, {}

    monkeypatch.setattr("captioner_server.http.request.body._parse_json", parse)
    with (
        ThreadPoolExecutor(4) as callers,
        httpx.Client(base_url=http_server.server.http_url, timeout=PATIENCE_S) as http,
    ):
        bodies = [b" " * 100_000] * 4
        answers = list(callers.map(lambda body: http.post("/v1/caption", content=body, headers=JSON), bodies))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert most == 1


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 150_000,
        b"\r\n" * 70_000,
        b"--b\r\n" * 20_000,
        b"--b\r\nContent-Disposition: form-data; name=image; filename=" + b"x" * 150_000,
        b"--b\r\n" + b"X: y\r\n" * 20_000,
        b"--b\r\nContent-Disposition: form-data; name*=utf-9''%ff; filename=\"../x\0\"\r\n\r\nx\r\n--b--",
        b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\n--c--\r\n--b--\r\n",
    ],
    ids=lambda body: str(body[:20]),
)
def test_malformed_forms_are_refused(http, body, caplog):
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = http.post("/v1/caption", content=body, headers=headers)
    assert answer.status_code in (400, 413) and len(answer.content) < 2000
    answer = http.post(
        "/v1/caption", content=body, headers={"content-type": "multipart/form-data" + ";b" * 9000}
    )
    assert answer.status_code == 400
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "undefined", "utf-16", "no-such-charset", '"punycode"']
)
def test_a_form_whose_texts_take_long_to_decode_is_refused(http, charset):
    part = b'--b\r\nContent-Disposition: form-data; name="max_words"\r\n\r\n-' + b"b" * 60_000 + b"\r\n"
    headers = {"content-type": f"multipart/form-data; boundary=b; charset={charset}"}
    started = time.monotonic()
    answer = http.post("/v1/caption", content=part * 20 + b"--b--\r\n", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST")
    assert time.monotonic() - started < PATIENCE_S / 4
