"""OpenAI's official client against a server."""

import base64
import http.server
import json
import socket
import threading
import time
from contextlib import ExitStack, closing

import openai
import pytest
from pydantic import BaseModel
from support.http_serving import IMAGE, connect, expected, keywords, post_later, serve_http
from support.models import FakeModel
from support.patience import PATIENCE_S, wait_until
from support.serving import RunningServer

from captioner.results import Caption

URL = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
PART = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}


@pytest.fixture(scope="module")
def client(http_running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{http_running[0].server.http_url}/v1", api_key="any", max_retries=0)


@pytest.fixture
def caption(http_server) -> str:
    return expected(http_server)["caption"]


def asking(prompt: str, *images: object) -> list:
    return [{"role": "user", "content": [{"type": "text", "text": prompt}, *(images or (PART,))]}]


def test_chat_answers_with_the_caption(client, caption) -> None:
    answer = client.chat.completions.create(model="captioner", messages=asking("What is this?"))
    assert answer.choices[0].message.content == caption
    assert (answer.model, answer.choices[0].finish_reason) == ("captioner", "stop")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len(caption.split()) + 1


def test_chat_streams_words(client, caption) -> None:
    chunks = list(
        client.chat.completions.create(
            model="default",
            messages=asking("What is this?"),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    told = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(told) == caption
    assert len([one for one in told if one]) == len(caption.split())
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == len(caption.split()) + 1


def test_chat_parses_into_a_model(client, http_server, caption) -> None:
    class Photo(BaseModel):
        title: str
        keywords: list[str]

    answer = client.chat.completions.parse(
        model="captioner", messages=asking("Caption it."), response_format=Photo
    )
    assert answer.choices[0].message.parsed == Photo(title=caption, keywords=keywords(http_server))


def test_responses_answer_and_stream(client, caption) -> None:
    asked = [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": URL, "detail": "low"},
            ],
        }
    ]
    answer = client.responses.create(model="captioner", input=asked)
    assert (answer.output_text, answer.status) == (caption, "completed")
    assert answer.usage.output_tokens == len(caption.split()) + 1
    with client.responses.stream(model="captioner", input=asked) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert "".join(deltas) == stream.get_final_response().output_text == caption


def test_a_text_like_the_mark_of_an_image_is_a_text(client, http_server) -> None:
    """Long texts, such as images, are taken out of a request before it is read."""
    large = base64.b64encode(IMAGE + bytes(20_000)).decode()
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{large}"}}
    for text in ("@0", "@1", "@"):
        answer = client.chat.completions.create(model="captioner", messages=asking(text, image))
        assert answer.choices[0].message.content
    with pytest.raises(openai.BadRequestError, match="not base64"):
        image = {"type": "image_url", "image_url": {"url": "@0"}}
        client.chat.completions.create(model="captioner", messages=asking("x" * 20_000, image))


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_has_at_most_as_many_words_as_are_asked_for(client, http_server, caption, name) -> None:
    def ask(most: int, prompt: str = "What is this?", **more):
        extra = {"extra_body": {name: most}}
        return client.chat.completions.create(model="captioner", messages=asking(prompt), **extra, **more)

    short = expected(http_server, max_words=2)["caption"]
    answer = ask(2)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (short, "length")
    assert answer.usage.completion_tokens == 2
    chunks = list(ask(2, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == short
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    for most in (300, 10**400, -1, 20):
        answer = ask(most)
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (caption, "stop")
    answer = ask(2, "Answer as JSON.")
    assert json.loads(answer.choices[0].message.content)["caption"] == short
    assert answer.choices[0].finish_reason == "stop"
    for wrong in (True, "2", [2]):
        with pytest.raises(openai.BadRequestError, match=f"{name} must be a number"):
            ask(wrong)


def test_an_answer_ends_before_what_stops_it(client, caption) -> None:
    def ask(stop: object, prompt: str = "What is this?", **more):
        asked = asking(prompt)
        return client.chat.completions.create(model="captioner", messages=asked, stop=stop, **more)

    first, second, third, *_ = caption.split()
    assert second != first not in second
    for stop in (third, ["\n", third, ""]):
        answer = ask(stop)
        assert answer.choices[0].message.content == caption[: caption.index(third)]
        assert answer.choices[0].finish_reason == "stop"
    assert ask(third, max_tokens=3).choices[0].finish_reason == "stop"
    assert ask("xyzzy").choices[0].message.content == caption
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(third, stream=True)]
    assert "".join(pieces) == caption[: caption.index(third)]
    assert ask(first).choices[0].message.content == ""
    assert json.loads(ask(third, "As JSON, please.").choices[0].message.content)["caption"] == caption
    for wrong in (5, [5], {"a": 1}):
        with pytest.raises(openai.BadRequestError, match="stop must be"):
            ask(wrong)


def test_responses_say_that_they_are_cut(client, http_server) -> None:
    asked = [{"role": "user", "content": [{"type": "input_image", "image_url": URL, "detail": "low"}]}]
    short = expected(http_server, max_words=2)["caption"]
    answer = client.responses.create(model="captioner", input=asked, max_output_tokens=2)
    assert (answer.output_text, answer.status) == (short, "incomplete")
    assert answer.incomplete_details.reason == "max_output_tokens"
    with client.responses.stream(model="captioner", input=asked, max_output_tokens=2) as stream:
        *_, last = stream
    assert (last.type, last.response.output_text) == ("response.incomplete", short)


def test_models_are_listed(client) -> None:
    assert [model.id for model in client.models.list()] == ["captioner", "default"]
    assert client.models.retrieve("captioner").owned_by == "captioner"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")


def test_a_lightroom_plug_in_gets_the_fields_of_its_schema(http, http_server, caption) -> None:
    text = {"type": "string"}
    names = ["Image caption", "Image title", "Image Alt Text", "keywords"]
    request = {
        "model": "captioner:latest",
        "temperature": 0.1,
        "response_format": {
            "type": "object",
            "required": names,
            "properties": {**dict.fromkeys(names[:3], text), "keywords": {"type": "array", "items": text}},
        },
        "messages": [
            {"role": "system", "content": "You are a professional photography analyst."},
            {"role": "user", "content": "Describe the image. Some keywords are: dog"},
            {"role": "user", "content": [PART]},
        ],
    }
    answer = http.post("/v1/chat/completions", json=request).json()["choices"][0]["message"]["content"]
    assert json.loads(answer) == {
        **dict.fromkeys(names[:2], caption),
        "Image Alt Text": Caption(caption, 0.0).alt_text,
        "keywords": keywords(http_server),
    }


@pytest.mark.parametrize("number", [1, 1.0, None])
def test_one_answer_may_be_asked_for(http, caption, number) -> None:
    """Some encoders of JSON write 1.0 for 1."""
    answer = http.post("/v1/chat/completions", json={"messages": asking("a"), "n": number}).json()
    assert answer["choices"][0]["message"]["content"] == caption


@pytest.mark.parametrize(
    ("request_", "kind", "reason"),
    [
        ({"model": "gpt-4o", "messages": asking("a")}, openai.NotFoundError, "no model 'gpt-4o'"),
        ({"messages": [{"role": "user", "content": "Hello"}]}, openai.BadRequestError, "no image"),
        ({"messages": asking("a"), "n": 2}, openai.BadRequestError, "n must be 1"),
        (
            {
                "messages": asking(
                    "a", {"type": "image_url", "image_url": {"url": "https://example.org/a.jpg"}}
                )
            },
            openai.BadRequestError,
            "--allow-urls",
        ),
        (
            {
                "messages": asking("a"),
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "mood",
                        "schema": {
                            "type": "object",
                            "properties": {"mood": {"type": "string"}},
                            "required": ["mood"],
                        },
                    },
                },
            },
            openai.BadRequestError,
            "nothing is known for mood",
        ),
    ],
    ids=range(5),
)
def test_errors_have_the_form_of_openai(client, request_, kind, reason) -> None:
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**{"model": "captioner", **request_})
    assert reason in caught.value.body["message"]
    assert caught.value.type == "invalid_request_error"
    assert caught.value.code


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": URL[22:]}},
        {"type": "image", "image": URL},
        {"type": "image", "image_url": {"url": URL}},
        {"type": "file", "file": {"file_data": URL, "filename": "a.png"}},
        {"type": "image_file", "image_file": {"file_id": "a"}},
        {"type": "input_image", "file_id": "a"},
    ],
    ids=range(6),
)
def test_images_in_other_forms(http, part) -> None:
    chat = http.post("/v1/chat/completions", json={"messages": asking("a", part)})
    responses = http.post("/v1/responses", json={"input": asking("a", part)})
    for answer, form in ((chat, PART["type"]), (responses, "input_image")):
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["param"] in ("messages", "input")
        assert f'type {part["type"]!r} is not understood; send it as {{"type"' in error["message"]
        assert form in error["message"] or part["type"] == "input_image"


def test_errors_about_formats_name_their_field(http) -> None:
    mood = {"type": "object", "properties": {"mood": {"type": "string"}}, "required": ["mood"]}
    chat = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": mood}}}
    responses = {"text": {"format": {"type": "json_schema", "name": "a", "schema": mood}}}
    for path, asked, field in (
        ("chat/completions", {"messages": asking("a"), **chat}, "response_format"),
        ("responses", {"input": asking("a"), **responses}, "text.format"),
    ):
        answer = http.post(f"/v1/{path}", json=asked)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


@pytest.mark.parametrize(
    ("path", "fields", "own"),
    [
        ("chat/completions", {"guided_choice": ["yes", "no"]}, "response_format"),
        ("chat/completions", {"structured_outputs": {"choice": ["yes", "no"]}}, "response_format"),
        ("chat/completions", {"guided_json": COUNT}, "response_format"),
        ("chat/completions", {"grammar": 'root ::= "yes" | "no"'}, "response_format"),
        ("chat/completions", {"format": COUNT}, "response_format"),
        ("chat/completions", {"functions": [], "function_call": {"name": "a"}}, "response_format"),
        ("responses", {"response_format": {"type": "json_object"}}, "text.format"),
    ],
)
def test_a_format_in_a_field_of_another_server_is_an_error(http, path, fields, own) -> None:
    """Its answer would have the wrong form: a caption where yes or no is asked."""
    answer = http.post(f"/v1/{path}", json={"messages": asking("a"), "input": asking("a"), **fields})
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == list(fields)[-1] and own in error["message"]


def test_fields_of_other_servers_that_ask_for_no_format_are_ignored(http, caption) -> None:
    fields = {"format": "", "guided_json": None, "function_call": "auto"}
    answer = http.post("/v1/chat/completions", json={"messages": asking("a"), **fields})
    assert answer.json()["choices"][0]["message"]["content"] == caption


def test_a_json_object_may_have_a_schema(http) -> None:
    format = {"type": "json_object", "schema": COUNT}
    answer = http.post("/v1/chat/completions", json={"messages": asking("a"), "response_format": format})
    assert answer.status_code == 400 and "count" in answer.json()["error"]["message"]


def test_urls_are_fetched_where_the_server_allows_it_from_public_addresses_only() -> None:
    with serve_http(FakeModel(), allow_urls=True) as (server, _):
        client = openai.OpenAI(base_url=f"{server.server.http_url}/v1", api_key="any", max_retries=0)
        url = f"{server.server.http_url}/page.css"
        with pytest.raises(openai.BadRequestError, match="not a public address"):
            client.chat.completions.create(
                model="captioner",
                messages=asking("a", {"type": "image_url", "image_url": {"url": url}}),
            )


def test_an_image_is_fetched_from_a_url_and_captioned(monkeypatch, caption) -> None:
    class Site(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(IMAGE)

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr("captioner.images.fetch._is_public", lambda address: True)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as site,
        serve_http(FakeModel(), allow_urls=True) as (server, _),
    ):
        threading.Thread(target=site.serve_forever, daemon=True).start()
        client = openai.OpenAI(base_url=f"{server.server.http_url}/v1", api_key="any", max_retries=0)
        part = {"type": "input_image", "image_url": f"http://127.0.0.1:{site.server_port}/a.png"}
        asked = [{"role": "user", "content": [part]}]
        assert client.responses.create(model="captioner", input=asked).output_text == caption
        site.shutdown()


class Silent:
    """A web server that accepts connections and says nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/a.png"

    def accept(self) -> socket.socket:
        self._listener.settimeout(PATIENCE_S)
        accepted, _ = self._listener.accept()
        accepted.settimeout(PATIENCE_S)
        assert accepted.recv(2**16)
        return accepted

    def close(self) -> None:
        self._listener.close()


def ask_for(url: str, server: RunningServer, token: str = "") -> socket.socket:
    """A request for a caption of a URL, whose answer nobody waits for."""
    body = json.dumps({"messages": asking("a", {"type": "image_url", "image_url": {"url": url}})}).encode()
    connection = connect(server)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return connection


def test_a_fetch_ends_when_its_caller_has_gone(monkeypatch) -> None:
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda address: True)
    with closing(Silent()) as silent, serve_http(FakeModel(), allow_urls=True) as (server, _):
        caller = ask_for(silent.url, server)
        with silent.accept() as fetching:
            caller.close()
            began = time.monotonic()
            assert fetching.recv(1) == b""
            assert time.monotonic() - began < 15  # a fetch takes 20 s by itself


def test_silent_urls_of_one_caller_do_not_keep_others_waiting(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("captioner.images.fetch._is_public", lambda address: True)
    (tmp_path / "tokens").write_text("alice a\nbob b\n")
    options = {"allow_urls": True, "token_file": tmp_path / "tokens", "upload_bytes": 2**33}
    with ExitStack() as stack:
        silent, other = (stack.enter_context(closing(Silent())) for _ in range(2))
        server, _ = stack.enter_context(serve_http(FakeModel(), **options))
        for _ in range(80):
            stack.enter_context(ask_for(silent.url, server, "a"))
        first = [stack.enter_context(silent.accept()) for _ in range(16)]
        stack.enter_context(ask_for(other.url, server, "b"))
        stack.enter_context(other.accept())
        first.pop().close()
        stack.enter_context(silent.accept())  # the next of the first caller


def test_a_full_server_says_when_to_come_again() -> None:
    model = FakeModel()
    with serve_http(model, queue_size=1) as (server, _):
        model.hold.clear()
        waiting = server.start(post_later(server))
        wait_until(lambda: server.metric("admitted_images") == 1)
        client = openai.OpenAI(base_url=f"{server.server.http_url}/v1", api_key="any", max_retries=0)
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(model="captioner", messages=asking("a"))
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert (caught.value.type, caught.value.code) == ("rate_limit_error", "busy")
        model.hold.set()
        assert waiting.result(PATIENCE_S).status_code == 200
