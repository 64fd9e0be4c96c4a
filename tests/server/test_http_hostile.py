"""HTTP: callers that do it wrong on purpose."""

import json

import pytest
from support.http_serving import IMAGE, JSON, connect, expected
from uvicorn.protocols.http.h11_impl import H11Protocol


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


def test_any_host_is_answered(http_server):
    for head in (b"GET /nowhere HTTP/1.1\r\nHost: [\r\n", b"POST /v1/caption HTTP/1.1\r\nHost: a:b:c\r\n"):
        with connect(http_server) as bare:
            bare.sendall(head + b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            assert bare.makefile("rb").readline().split()[1] in (b"404", b"400")


def test_a_body_in_tiny_chunks_is_read_in_small_pieces(http_server, monkeypatch):
    pieces = []
    plain = H11Protocol.data_received

    def watched(self, data):
        pieces.append(len(data))
        plain(self, data)

    monkeypatch.setattr(H11Protocol, "data_received", watched)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in IMAGE)
    with connect(http_server) as bare:
        head = b"POST /v1/caption HTTP/1.1\r\nHost: a\r\nContent-Type: image/png\r\nConnection: close\r\n"
        bare.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        answer = bare.makefile("rb").read()
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == expected(http_server)
    assert sum(pieces) >= len(chunks) and max(pieces) <= 4096
