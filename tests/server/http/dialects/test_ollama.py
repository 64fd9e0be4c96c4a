"""Ollama's official client against a server."""

import base64
import json

import httpx
import ollama
import pytest
from support.http_serving import IMAGE, expected, keywords, serve_http
from support.models import FakeModel

EMOJI = "\N{RACCOON}"
PROMPT = "Describe the image in one sentence. Avoid text formatting, meta-language, and filler words."


@pytest.fixture(scope="module")
def client(http_running) -> ollama.Client:
    return ollama.Client(host=http_running[0].server.http_url)


@pytest.fixture
def caption(http_server) -> str:
    return expected(http_server)["caption"]


@pytest.mark.parametrize("model", ["captioner", "default", "captioner:latest", "default:latest"])
def test_generate_answers_with_the_caption(client, caption, model) -> None:
    answer = client.generate(model, PROMPT, images=[IMAGE])
    assert (answer.response, answer.model, answer.done, answer.done_reason) == (caption, model, True, "stop")
    assert answer.eval_count == len(caption.split()) + 1
    assert answer.total_duration >= answer.eval_duration > 0
    assert answer.prompt_eval_count == 6


def test_generate_streams_words(client, caption) -> None:
    parts = list(client.generate("captioner", PROMPT, images=[IMAGE], stream=True))
    assert "".join(part.response for part in parts) == caption
    assert len(parts) == len(caption.split()) + 1
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


@pytest.mark.parametrize("stream", [False, True])
def test_options_that_shorten_the_answer(client, http_server, caption, stream) -> None:
    def ask(**options):
        asked = {"images": [IMAGE], "options": options}
        parts = [client.generate("captioner", PROMPT, **asked)]
        if stream:
            parts = list(client.generate("captioner", PROMPT, **asked, stream=True))
        return "".join(part.response for part in parts), parts[-1].done_reason, parts[-1].eval_count

    assert ask(num_predict=2) == (expected(http_server, max_words=2)["caption"], "length", 2)
    for endless in (-1, -2, 128):
        assert ask(num_predict=endless)[:2] == (caption, "stop")
    third = caption.split()[2]
    assert ask(stop=[third])[:2] == (caption[: caption.index(third)], "stop")


def test_an_answer_ends_with_a_context(client) -> None:
    """ComfyUI's node reads it without asking whether it is there, and may send it back."""
    asked = {"model": "captioner", "prompt": PROMPT, "images": [IMAGE]}
    assert client.generate(**asked)["context"] == []
    assert list(client.generate(**asked, context=[], stream=True))[-1]["context"] == []


def test_chat_answers_about_the_latest_image(client, caption) -> None:
    other = base64.b64encode(b"not the latest").decode()
    messages = [
        {"role": "user", "content": "List keywords.", "images": [other]},
        {"role": "assistant", "content": "cat"},
        {"role": "user", "content": PROMPT, "images": [IMAGE]},
    ]
    assert client.chat("captioner", messages).message.content == caption
    parts = list(client.chat("captioner", messages, stream=True))
    assert "".join(part.message.content for part in parts) == caption


def test_a_model_can_be_loaded_before_it_is_asked(client) -> None:
    assert client.generate("captioner").done_reason == "load"
    assert client.chat("captioner").done_reason == "load"


def test_models_are_listed_and_described(client, http) -> None:
    assert [model.model for model in client.list().models] == ["captioner:latest", "default:latest"]
    assert client.ps().models[0].name == "captioner:latest"
    shown = client.show("captioner:latest")
    assert "vision" in shown.capabilities
    assert shown.details.quantization_level == "float32"
    assert http.get("/api/version").json()["version"]


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        ({"model": "llava", "images": [IMAGE]}, 404, "no model 'llava', only captioner, default"),
        ({"model": "captioner", "prompt": "Hello!"}, 400, "no image"),
        ({"model": "captioner", "images": [IMAGE, IMAGE]}, 400, "one image in a request, not 2"),
        ({"model": "captioner", "images": [b"no picture at all"]}, 400, "not an image"),
    ],
    ids=range(4),
)
def test_errors_have_the_form_of_ollama(client, request_, status, reason) -> None:
    with pytest.raises(ollama.ResponseError) as caught:
        client.generate(**request_)
    assert caught.value.status_code == status
    assert reason in caught.value.error


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"images": "x"},
        {"images": [1]},
        {"images": ["!"]},
        {"stream": "yes"},
        {"format": 3},
        {"prompt": ["a"]},
    ],
    ids=range(7),
)
def test_malformed_requests_are_refused(http, body) -> None:
    if isinstance(body, dict):
        body = {"images": [base64.b64encode(IMAGE).decode()], **body}
    answer = http.post("/api/generate", json=body)
    assert answer.status_code == 400
    assert isinstance(answer.json()["error"], str)


def test_what_photoprism_sends_is_answered(http, http_server, caption) -> None:
    request = {
        "id": "0c3b47d2-9a57-4b9b-a0f6-7d8d2b0c5a10",
        "model": "captioner:latest",
        "prompt": "Create a caption with exactly one sentence in the active voice that describes the main "
        "visual content. Begin with the main subject and clear action. Avoid text formatting, meta-language, "
        "and filler words.",
        "suffix": "",
        "options": {"temperature": 0.1},
        "stream": False,
        "images": [base64.b64encode(IMAGE).decode()],
    }
    assert http.post("/api/generate", json=request).json()["response"] == caption
    request |= {
        "system": "You are a PhotoPrism vision model. Output concise JSON that matches the schema.",
        "prompt": "Analyze the image and return label objects with name, confidence (0-1), and topicality "
        '(0-1). Respond with JSON exactly like {"labels":[{"name":"sunset","confidence":0.72,'
        '"topicality":0.64,"nsfw":false}]} and adjust the values for this image.',
        "format": "json",
    }
    labels = json.loads(http.post("/api/generate", json=request).json()["response"])["labels"]
    assert [label["name"] for label in labels] == keywords(http_server)
    assert all(0 < label["confidence"] == label["topicality"] <= 1 for label in labels)


def test_tokens_and_limits_hold_for_every_protocol(tmp_path) -> None:
    (tmp_path / "tokens").write_text("alice a-token calls=1\n")
    options = {"token_file": tmp_path / "tokens", "metrics_callers": True}
    with serve_http(FakeModel(), **options) as (server, http):
        url = server.server.http_url
        with pytest.raises(ollama.ResponseError) as caught:
            ollama.Client(host=url).list()
        assert caught.value.status_code == 401
        client = ollama.Client(host=url, headers={"Authorization": "Bearer a-token"})
        assert client.generate("captioner", images=[IMAGE]).response
        assert server.metric("caller_images_total", caller="alice") == 1
        assert http.post("/v1/responses", json={}).status_code == 401


def test_before_it_serves_errors_have_the_form_of_ollama() -> None:
    with serve_http(None) as (_, http):
        answer: httpx.Response = http.get("/api/tags")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "loading" in answer.json()["error"]


def test_a_question_about_a_model_is_small(http) -> None:
    answer = http.post("/api/show", json={"model": "captioner", "system": "a" * 70_000})
    assert answer.status_code == 413 and "65536" in answer.json()["error"]


def test_a_large_image_among_other_texts_is_captioned(http, caption) -> None:
    images = [base64.encodebytes(IMAGE + bytes(100_000)).decode()]
    body = {
        "system": EMOJI,
        "prompt": "a" * 10_000,
        "images": images,
        "options": {"stop": [EMOJI]},
        "stream": False,
    }
    assert http.post("/api/generate", json=body).json()["response"] == caption
    answer = http.post("/api/generate", json={**body, "prompt": "a" * 20_000})
    assert answer.status_code == 400 and "no image has at most 16384 bytes" in answer.json()["error"]
    answer = http.post("/api/generate", json={**body, "options": {"stop": ["a" * 100] * 3000}})
    assert answer.status_code == 400 and "beside images" in answer.json()["error"]


BYTES = list(IMAGE[:200])
MANY = BYTES * 100
URL_SAFE = base64.urlsafe_b64encode(b"\xff\xfe" * 100).decode()


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ([MANY], "an image is one text, in base64"),
        ([{"type": "Buffer", "data": MANY}], "an image is one text, in base64"),
        ([BYTES], "an image must be a text in base64, not a list"),
        ([{"type": "Buffer", "data": BYTES}], "an image must be a text in base64, not an object"),
        ([None], "an image must be a text in base64, not null"),
        ("abc", "images must be a list of texts in base64"),
        (["/home/me/dog.jpg"], "send the image itself, not the name of its file"),
        (["C:\\photos\\dog"], "send the image itself, not the name of its file"),
        ([URL_SAFE], "base64url: send + and / in place of - and _"),
    ],
    ids=range(9),
)
def test_images_in_other_forms(http, images, reason) -> None:
    answer = http.post("/api/generate", json={"prompt": "Describe", "images": images, "stream": False})
    assert answer.status_code == 400 and reason in answer.json()["error"]


def test_a_format_in_the_field_of_openai_is_an_error(http) -> None:
    image = base64.b64encode(IMAGE).decode()
    format = {"response_format": {"type": "json_object"}}
    for path, asked in (("generate", {}), ("chat", {"messages": [{"content": "a", "images": [image]}]})):
        answer = http.post(f"/api/{path}", json={"prompt": "a", "images": [image], **asked, **format})
        assert answer.status_code == 400 and "belongs into format" in answer.json()["error"]


def test_images_in_the_wrong_place_of_a_chat(http) -> None:
    image = base64.b64encode(IMAGE).decode()
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}]
    answer = http.post("/api/chat", json={"messages": [{"role": "user", "content": parts}]})
    assert answer.status_code == 400 and '"images": ["..."]' in answer.json()["error"]
    answer = http.post("/api/chat", json={"messages": [{"role": "user", "content": "a"}], "images": [image]})
    assert answer.status_code == 400 and "those of a chat belong into a message" in answer.json()["error"]


@pytest.mark.parametrize("count", [3, 50_000])
@pytest.mark.parametrize("place", ["first", "last"])
def test_the_context_of_earlier_answers_is_ignored(http, caption, count, place) -> None:
    context = {"context": list(range(100_000, 100_000 + count))}
    asked = {"images": [base64.b64encode(IMAGE).decode()], "prompt": 'a "context": [1, 2]', "stream": False}
    body = {**context, **asked} if place == "first" else {**asked, **context}
    assert http.post("/api/generate", json=body).json()["response"] == caption


def test_spaces_are_no_text(http, caption) -> None:
    body = json.dumps({"stream": False, "images": [base64.b64encode(IMAGE).decode()]})
    spaced = body.replace('"images":', f'"images":{20_000 * " "}')
    assert http.post("/api/generate", content=spaced).json()["response"] == caption


ESCAPED = 4500 * '\\"'
ODD = 9001 * "\\" + '"'


@pytest.mark.parametrize("text", ["\\", '"', ESCAPED, 9000 * "\\", ODD, 16_385 * "a" + "\\"], ids=range(6))
def test_quotes_and_backslashes_in_texts_beside_a_large_image(http, caption, text) -> None:
    image = base64.b64encode(IMAGE + bytes(100_000)).decode()
    body = {"ignored": text, "images": [image], "stream": False, "more": [text]}
    assert http.post("/api/generate", json=body).json()["response"] == caption
