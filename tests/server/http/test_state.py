"""HTTP: what the server says of itself while it loads, serves and drains."""

import json
import socket

import httpx
import pytest
from support.http_serving import IMAGE, OCTETS, post_later, serve_http
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.processes import server_process
from support.serving import serve
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.options import OPTION_SPECS


def test_the_model_says_what_it_is(http_server, http):
    model = http.get("/v1/model").json()
    assert model["model"] == http_server.model.model == f"{model['name']}@{model['digest']}"
    assert tuple(model["grid"]) == http_server.model.grid
    assert (model["device"], model["provider"], model["precision"]) == ("cpu", "FakeProvider", "float32")
    assert model["defaults"]["beam_size"] == 3
    assert (model["max_image_bytes"], model["max_beam_size"], model["max_words"]) == (200_000, 8, 30)
    assert model["calibration"]["event"] == "the caption is any good"
    assert (model["served_as"], model["models"]) == ("default", ["default"])


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_head(http_server, monkeypatch):
    immediate = []
    plain = H11Protocol.connection_made

    def watched(self, transport):
        option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        immediate.append(option != 0)
        plain(self, transport)

    monkeypatch.setattr(H11Protocol, "connection_made", watched)
    url = f"{http_server.server.http_url}/v1/model"
    assert httpx.get(url, timeout=PATIENCE_S).status_code == 200
    assert immediate == [True]


def test_the_interface_is_described(http):
    described = http.get("/openapi.json").json()
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(described)
    schemas = described["components"]["schemas"]
    model = http.get("/v1/model").json()
    assert model.keys() == schemas["Model"]["properties"].keys()
    assert model.keys() >= set(schemas["Model"]["required"])
    for path, options in (
        ("/v1/caption", {*OPTION_SPECS, "style"}),
        ("/v1/caption:stream", {*OPTION_SPECS, "style"}),
        ("/v1/picture", set()),
    ):
        names = {parameter["name"] for parameter in described["paths"][path]["post"]["parameters"]}
        assert names == options | {"timeout_s", "model"}
        assert {"200", "400", "401", "403", "404", "413", "429", "503", "504"} == set(
            described["paths"][path]["post"]["responses"]
        )


def test_errors_are_described_as_they_are(http):
    described = http.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    validate = pytest.importorskip("jsonschema").validate
    for path in ("/api/chat", "/api/generate", "/v1/chat/completions", "/v1/responses"):
        call = described["paths"][path]["post"]
        answer = http.post(path, json={"messages": [{}], "input": [{}], "images": ["?"]})
        assert answer.status_code == 400
        schema = call["responses"]["400"]["content"]["application/json"]["schema"]["$ref"]
        validate(answer.json(), schemas[schema.rpartition("/")[2]])
        required = call["requestBody"]["content"]["application/json"]["schema"]["required"]
        assert bool(required) == (http.post(path, json={}).status_code == 400)


def test_requests_for_what_is_not_there_are_logged(http_server, http, caplog):
    caplog.set_level("INFO", "captioner_server.calls")
    before = http_server.metric("calls_total", method="unknown", code="NOT_FOUND")

    def logged(answer):
        """The fields of an answer's call, which is logged once the answer is sent."""
        own = answer.headers["x-request-id"]
        return wait_until(
            lambda: next((one.fields for one in caplog.records if one.fields["request_id"] == own), None)
        )

    for verb, path in (("GET", "/nope?token=secret"), ("DELETE", "/health")):
        record = logged(http.request(verb, path))
        assert record["method"] == "unknown"
        assert record["reason"].startswith(f"{verb} {path.partition('?')[0]} ") and "secret" not in str(
            record
        )
    assert http_server.metric("calls_total", method="unknown", code="NOT_FOUND") == before + 2
    answer = http.head("/v1/model")
    assert answer.status_code == 200 and logged(answer)["method"] == "HEAD /v1/model"


def test_a_server_that_loads_is_alive_but_not_ready():
    with serve_http(None) as (_, http):
        assert http.get("/healthz").status_code == 200
        for answer in (http.get("/readyz"), http.get("/v1/model"), http.post("/v1/caption", content=IMAGE)):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "NOT_SERVING")
            assert int(answer.headers["retry-after"]) >= 1


def test_draining_finishes_what_was_accepted():
    model = FakeModel()
    with serve_http(model) as (server, http):
        model.hold.clear()
        waiting = server.start(post_later(server))
        wait_until(lambda: server.metric("in_flight_calls") == 1)
        draining = server.start(server.server.drain())
        wait_until(lambda: http.get("/readyz").status_code == 503)
        assert http.post("/v1/caption", content=IMAGE, headers=OCTETS).status_code == 503
        model.hold.set()
        assert waiting.result(PATIENCE_S).status_code == 200
        assert draining.result(PATIENCE_S)
        with pytest.raises(httpx.TransportError):
            http.get("/healthz")


def test_before_it_drains_a_server_sends_callers_elsewhere_and_still_answers():
    with serve_http(FakeModel(), lame_duck_s=600) as (server, http):
        draining = server.start(server.server.drain())
        wait_until(lambda: http.get("/readyz").status_code == 503)
        answer = http.post("/v1/caption", content=IMAGE, headers=OCTETS)
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"  # the next request would meet a port that closes
        draining.cancel()


def test_there_is_no_http_unless_it_is_asked_for():
    with serve(FakeModel()) as server:
        assert server.server.http_url is None


def test_a_process_says_where_http_is_served():
    with server_process(http_port=0) as running:
        [url] = [json.loads(line)["url"] for line in running.lines if '"http"' in line]
        answer = httpx.post(f"{url}/v1/caption", content=IMAGE, headers=OCTETS, timeout=PATIENCE_S)
        assert answer.status_code == 200
        running.tell()
        assert running.end() == 0
