"""HTTP: addresses that are there, are described, or say which one was meant."""

import re
from urllib.parse import urljoin

import httpx
import pytest
from support.http_serving import serve_http
from support.models import FakeModel

from captioner_server.http.pages import static_file


def test_every_address_of_the_description_is_there(http):
    for path, verbs in http.get("/openapi.json").json()["paths"].items():
        place = path.replace("{model}", "captioner")
        for verb in verbs:
            assert http.request(verb, place).status_code not in (404, 405), (verb, place)


def test_the_description_can_be_read_without_anything_from_elsewhere(http):
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "<code>POST /v1/caption</code>" in page.text and "beam_size" in page.text
    assert not re.search(r"<script|src=|@import|url\(", page.text)
    place = "https://photos.example/captions/"  # a proxy may publish the server below a path
    for link in re.findall(r'href="([^"]*)', page.text):
        assert link == "data:," or urljoin(f"{place}docs", link) in (place, f"{place}openapi.json")


@pytest.mark.parametrize("place", ["https://photos.example", "http://10.0.0.1:8080/captions"])
def test_programs_find_the_calls_where_they_found_the_description(http, place):
    (server,) = http.get("/openapi.json").json()["servers"]
    # Some put the path of a call after an address that they have made absolute, others before.
    absolute = urljoin(f"{place}/openapi.json", server["url"]).rstrip("/")
    assert f"{absolute}/v1/caption" == f"{place}/v1/caption"
    assert urljoin(f"{place}/openapi.json", f"{server['url']}/v1/caption") == f"{place}/v1/caption"


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/page.js"])
def test_files_are_sent_once_and_in_full(http, path):
    file = http.get(path)
    assert int(file.headers["content-length"]) == len(file.content) > 0
    again = http.get(path, headers={"if-none-match": file.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert http.head(path).headers["content-length"] == file.headers["content-length"]
    assert http.post(path).status_code == 405


@pytest.mark.parametrize("path", ["/v1/model/", "/v1/model%2f", "/docs/"])
def test_nobody_is_sent_to_another_address(http, path):
    """Its scheme and host would be guesses: a proxy may have others."""
    answer = http.get(path, headers={"host": "captions.example"})
    assert (answer.status_code, "location" in answer.headers) == (404, False)
    assert f"it is GET {path.rstrip('/').removesuffix('%2f')}" in answer.json()["error"]["message"]


def test_calls_that_change_models_say_how_models_are_named(http):
    for call in ("POST /api/pull", "POST /api/create", "DELETE /api/delete", "POST /api/blobs/sha256:1"):
        answer = http.request(*call.split())
        assert answer.status_code == 404
        assert "models are named when the server starts" in answer.json()["error"]


def test_so_many_files_are_sent_at_once(http, monkeypatch):
    monkeypatch.setattr(static_file, "MOST_AT_ONCE", 0)
    answer = http.get("/page.js")
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "BUSY")
    monkeypatch.undo()
    assert http.get("/page.js").status_code == 200


def test_health_says_whether_images_are_captioned(http):
    assert http.get("/health").json() == {"status": "SERVING"}
    with serve_http(None) as (_, loading):
        assert loading.get("/health").status_code == 503
        assert loading.get("/docs").status_code == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        *(("http://a/healthz", 200), ("HTTPS://a:1/v1/model?model=default", 200), ("http://a", 200)),
        *(
            ("http://a?b=c", 200),
            ("http://a/health%7A", 200),
            ("http://a/nowhere", 404),
            ("ftp://a/healthz", 404),
        ),
    ],
)
def test_an_address_may_have_its_host_before_it(http, target, status):
    """As proxies get it."""
    assert http.get("/", extensions={"target": target.encode()}).status_code == status


def test_the_host_before_an_address_counts():
    with serve_http(FakeModel(), http_hosts="known.example") as (_, http):
        for target, host, status in (
            ("http://known.example/healthz", "other.example", 200),
            ("http://other.example/healthz", "known.example", 403),
        ):
            answer = http.get("/", headers={"host": host}, extensions={"target": target.encode()})
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        ("POST /caption", "POST /v1/caption?"),
        ("POST /predict", "POST /v1/caption?"),
        ("POST /api/caption", "POST /v1/caption?"),
        ("POST /v1/captions/", "POST /v1/caption?"),
        ("POST /chat/completions", "POST /v1/chat/completions?"),
        ("POST /v1/completions", "POST /v1/chat/completions?"),
        ("GET /models", "GET /v1/models?"),
        ("GET /api/v1/tags", "GET /api/tags?"),
        ("GET /status", "GET /health?"),
        ("GET /swagger-ui", "GET /docs?"),
        ("GET /metrics", "--metrics-port"),
        ("POST /api/pull", "--model NAME=BUNDLE"),
        ("GET /v2/models/default/ready", "over gRPC"),
        ("POST /captioner.v1.CaptionService/Caption", "gRPC has a port of its own (--port)"),
        ("POST /grpc.health.v1.Health/Check", "gRPC has a port of its own (--port)"),
        ("GET /v1/caption", "it is POST /v1/caption"),
        ("GET /api/chat", "it is POST /api/chat"),
        ("GET /healthzz", "GET /healthz?"),
        ("GET /wp-login.php", "GET /docs lists"),
    ],
)
def test_other_addresses_say_what_is_meant(http: httpx.Client, call, meant):
    verb, path = call.split()
    answer = http.request(verb, path, follow_redirects=True)
    assert answer.status_code in (404, 405)
    error = answer.json()["error"]
    message = error if path.startswith(("/api/", "/v2/models")) else error["message"]
    assert message.startswith(call.rstrip("/")[:20]) and meant in message


def test_errors_below_v2_have_the_form_of_the_open_inference_protocol(http):
    """tritonclient.http expects a text, and cannot even show an object."""
    answer = http.post("/v2/models/captioner/infer", content=b"{}")
    assert answer.status_code == 404 and answer.json()["error"].endswith("is answered over gRPC")


def test_grpc_without_a_proxy_is_told_of_its_port(http):
    """What it sends first reads as a request of HTTP/1.1."""
    answer = http.request("PRI", "/", extensions={"target": b"*"})
    assert answer.json()["error"]["message"] == "PRI * is not here; gRPC has a port of its own (--port)"


def test_addresses_that_are_not_there_have_errors_of_openai_too(http):
    for answer in (http.get("/v1/nothing"), http.delete("/v1/models"), http.post("/v1/embeddings", json={})):
        error = answer.json()["error"]
        assert (error["code"], error["type"], error["param"]) == ("NOT_FOUND", "invalid_request_error", None)
        assert error["message"]
    assert set(http.get("/nothing").json()["error"]) == {"code", "message"}
