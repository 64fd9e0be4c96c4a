"""Captions over HTTP: requests and their answers, whole or word by word."""

import asyncio
import base64
import dataclasses
import json
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from support.http_serving import IMAGE, JSON, OCTETS, expected, read_events, serve_http
from support.models import FakeModel
from support.patience import wait_until

from captioner.results import Caption, Word
from captioner.words.alt_text import alt_text
from captioner_server.http.caption import encode


@pytest.mark.parametrize(
    "kind",
    ["image/png", "application/octet-stream", "binary/octet-stream", "application/x-www-form-urlencoded"],
)
def test_a_raw_image_is_captioned(http_server, http, kind):
    answer = http.post("/v1/caption", content=IMAGE, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == expected(http_server)
    assert "attention" not in answer.json()["words"][0]
    assert "image" not in answer.json()
    assert answer.headers["cache-control"] == "no-store"
    assert "compute" in answer.headers["server-timing"]


def test_json_that_does_not_say_so_is_told_how(http):
    for kind in ({"content-type": "application/x-www-form-urlencoded"}, {}):  # of curl, and of no program
        answer = http.post("/v1/caption", content=b' {"image": ""}', headers=kind)
        assert answer.status_code == 400
        assert "send Content-Type: application/json" in answer.json()["error"]["message"]


def test_an_image_without_what_curl_drops_is_told_how(http):
    kind = {"content-type": "application/x-www-form-urlencoded"}
    answer = http.post("/v1/caption", content=IMAGE.translate(None, b"\0\n\r"), headers=kind)
    assert answer.status_code == 400 and "--data-binary" in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["application/json", "text/json", "Text/JSON; charset=utf-8"])
def test_json_has_two_names(http_server, http, kind):
    body = json.dumps({"image": base64.b64encode(IMAGE).decode()})
    answer = http.post("/v1/caption", content=body, headers={"content-type": kind})
    assert answer.json() == expected(http_server)


def test_query_parameters_are_options(http_server, http):
    query = {"attention": "true", "alternatives": 2, "beam_size": 4, "max_words": 3, "attention_size": "4x5"}
    answer = http.post("/v1/caption", params=query, content=IMAGE, headers=OCTETS).json()
    assert answer == expected(
        http_server, attention=True, alternatives=2, beam_size=4, max_words=3, attention_size=(4, 5)
    )
    assert (len(answer["words"]), len(answer["alternatives"])) == (3, 2)
    assert [len(answer["words"][0]["attention"]), len(answer["words"][0]["attention"][0])] == [4, 5]
    answer = http.post("/v1/caption", params=query | {"attention_size": "5"}, content=IMAGE, headers=OCTETS)
    assert np.shape(answer.json()["words"][0]["attention"]) == (5, 5)


def test_the_style_of_captions_is_that_of_the_command_line(http_server, http):
    query = {"alternatives": 2, "style": "alt"}
    encoded = base64.b64encode(IMAGE).decode()
    plain = expected(http_server, alternatives=2)
    others = [{**one, "caption": alt_text(one["caption"])} for one in plain["alternatives"]]
    worded = {**plain, "caption": alt_text(plain["caption"]), "alternatives": others}
    assert worded["caption"] != plain["caption"]
    for body in (
        {"params": query, "content": IMAGE, "headers": OCTETS},
        {"data": query, "files": {"image": ("a.png", IMAGE)}},
        {"json": {"image": encoded, "options": query}},
    ):
        assert http.post("/v1/caption", **body).json() == worded
        *_, (kind, last) = read_events(http.post("/v1/caption:stream", **body).text)
        assert (kind, last["caption"]) == ("caption", worded["caption"])
    answer = http.post("/v1/caption?style=caption&alternatives=2", content=IMAGE, headers=OCTETS)
    assert answer.json() == plain


def test_alt_text_has_neutral_keywords():
    class Gendered(FakeModel):
        def describe(self, *arguments):
            return dataclasses.replace(super().describe(*arguments), keywords=("woman", "man", "dog"))

    with serve_http(Gendered()) as (_, http):
        for style, keywords in (("caption", ["woman", "man", "dog"]), ("alt", ["person", "dog"])):
            answer = http.post(f"/v1/caption?style={style}", content=IMAGE, headers=OCTETS)
            assert answer.json()["keywords"] == keywords


@pytest.mark.parametrize("style", ["poem", "", ["alt"], None, 1])
@pytest.mark.parametrize("call", ["caption", "caption:stream"])
def test_an_unknown_style_is_refused(http, call, style):
    body = {"image": base64.b64encode(IMAGE).decode(), "options": {"style": style}}
    answer = http.post(f"/v1/{call}", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["field"] == "options.style"
    assert "style must be one of caption, alt" in answer.json()["error"]["message"]


@pytest.mark.parametrize("option", [{"style": "alt"}, {"beam_size": 3}])
def test_a_picture_has_no_options_of_captions(http, option):
    (name,) = option
    for body in (
        {"params": option, "content": IMAGE, "headers": OCTETS},
        {"data": option, "files": {"image": ("a.png", IMAGE)}},
        {"json": {"image": base64.b64encode(IMAGE).decode(), "options": option}},
    ):
        answer = http.post("/v1/picture", **body)
        assert answer.status_code == 400 and answer.json()["error"]["field"] == f"options.{name}"
        assert f"{name} is an option of captions" in answer.json()["error"]["message"]
    assert http.post("/v1/picture", json={"image": base64.b64encode(IMAGE).decode()}).status_code == 200
    assert http.post("/v1/picture?model=other", content=IMAGE, headers=OCTETS).status_code == 404


def test_an_unknown_option_is_told_the_known_ones(http):
    for body in (
        {"params": {"stile": "alt"}, "content": IMAGE, "headers": OCTETS},
        {"json": {"image": base64.b64encode(IMAGE).decode(), "options": {"stile": "alt"}}},
    ):
        answer = http.post("/v1/caption", **body)
        assert answer.status_code == 400 and answer.json()["error"]["field"] == "options.stile"
        assert answer.json()["error"]["message"].endswith(", style")


def test_an_option_that_is_given_twice_is_rejected(http):
    answer = http.post("/v1/caption?include=dog&include=cat", content=IMAGE, headers=OCTETS)
    assert answer.status_code == 400 and "include is given more than once" in answer.text


@pytest.mark.parametrize("name", ["timeout_s", "model"])
@pytest.mark.parametrize("verb", ["POST /v1/caption", "POST /v1/picture", "GET /v1/model"])
def test_no_field_of_a_query_is_given_twice(http, verb, name):
    """A proxy that reads the first would know another deadline, or another model, than the server."""
    method, path = verb.split()
    values = {"timeout_s": [60, 70], "model": ["default", "default"]}[name]
    answer = http.request(method, path, params={name: values}, content=IMAGE, headers=OCTETS)
    assert answer.status_code == 400 and f"{name} is given more than once" in answer.text


def test_a_multipart_form_is_captioned(http_server, http):
    answer = http.post("/v1/caption", files={"image": ("a.png", IMAGE)}, data={"alternatives": "1"})
    assert answer.json() == expected(http_server, alternatives=1)


def test_a_form_takes_one_image(http):
    answer = http.post("/v1/caption", files=[("image", ("a.png", IMAGE)), ("image", ("b.png", IMAGE))])
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "the form has several files: send one image per request"


def test_a_form_may_name_a_usual_charset(http_server, http):
    form = httpx.Request("POST", "http://a/", files={"image": ("a.png", IMAGE)}, data={"alternatives": "1"})
    kind = form.headers["content-type"] + "; charset=UTF-8"
    answer = http.post("/v1/caption", content=form.read(), headers={"content-type": kind})
    assert answer.json() == expected(http_server, alternatives=1)


def test_a_json_body_is_captioned(http_server, http):
    body = {
        "image": base64.b64encode(IMAGE).decode(),
        "options": {"attention": True, "attention_size": [3, 3]},
    }
    answer = http.post("/v1/caption", json=body)
    assert answer.json() == expected(http_server, attention=True, attention_size=(3, 3))


@pytest.mark.parametrize("more", [b"", bytes(30_000)], ids=["short", "long"])
@pytest.mark.parametrize(
    "form",
    [
        *("data:image/png;base64,{}", "DATA:;base64,{}", "{lines}", "data:,;base64,{lines}"),
        *(" data:image/png;base64, {}", "{indented}", "data:image/png;base64,{escaped}"),
    ],
)
def test_base64_in_json_may_have_lines_or_be_a_data_url(http_server, http, form, more):
    encoded = base64.encodebytes(IMAGE + more).decode()
    lines, indented = encoded.replace("\n", "\r\n"), encoded.replace("\n", "\n \t")
    escaped = quote(encoded, safe="")
    text = form.format(encoded.replace("\n", ""), lines=lines, indented=indented, escaped=escaped)
    answer = http.post("/v1/caption", json={"image": text})
    if ",;" in form:  # the data begin at the first comma, and are not in base64
        assert answer.json()["error"]["message"] == "image is not base64"
    else:
        assert answer.json() == expected(http_server)


def test_an_image_without_a_filename_is_said_to_be_a_text(http):
    answer = http.post("/v1/caption", files={"image": (None, IMAGE)})
    assert answer.status_code == 400 and "send it with a filename" in answer.json()["error"]["message"]


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
        (400, "INVALID_REQUEST", {"json": {"image": "QUJD", "options": []}}),
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


def test_a_stream_has_every_word_and_last_the_searched_caption(http_server, http):
    query = {"attention": "true", "alternatives": 2}
    answer = http.post("/v1/caption:stream", params=query, content=IMAGE, headers=OCTETS)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = read_events(answer.text)
    assert [kind for kind, _ in events] == ["word"] * 5 + ["caption"]
    greedy = expected(http_server, attention=True, beam_size=1)
    assert [data for _, data in events[:-1]] == greedy["words"]
    assert events[-1][1] == expected(http_server, attention=True, alternatives=2)
    assert len(events[-1][1]["alternatives"]) == 2


def test_maps_are_written_as_the_command_line_writes_them():
    """They are formatted in another way, because large ones would hold up other calls."""
    attention = np.float32([[0, 1, 1 / 3], [1e-4, 1.2345678e-5, 3e-30]])
    caption = Caption("a dog", -1.5, (Word("a", -0.5, attention, 0.25), Word("dog", -1.0, attention.T)))
    assert json.loads(asyncio.run(encode(caption))) == caption.to_dict()
    assert json.loads(asyncio.run(encode(caption.words[0]))) == caption.words[0].to_dict()
    with pytest.raises(ValueError, match="JSON"):
        asyncio.run(encode(Word("a", -0.5, np.float32([[np.nan]]))))


def test_a_greedy_stream_is_not_searched_again(http_server, http):
    batches = len(http_server.model.batches)
    answer = http.post("/v1/caption:stream?beam_size=1", content=IMAGE, headers=OCTETS)
    assert read_events(answer.text)[-1] == ("caption", expected(http_server, beam_size=1))
    assert len(http_server.model.batches) == batches


def test_words_come_while_others_are_decoded():
    model = FakeModel()
    with serve_http(model) as (_, http):
        model.first_word_read.clear()
        events = []
        with http.stream("POST", "/v1/caption:stream", content=IMAGE, headers=OCTETS) as answer:
            for line in answer.iter_lines():
                if line.startswith("event:"):
                    events.append(line)
                    model.first_word_read.set()
        assert events == ["event: word"] * 5 + ["event: caption"]


def test_what_goes_wrong_after_the_first_word_is_an_event():
    class Failing(FakeModel):
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


def test_a_format_that_the_server_leaves_out_is_refused_with_the_flag_that_takes_it(http):
    heic = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99)
    answer = http.post("/v1/caption", content=heic, headers=OCTETS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "NOT_AN_IMAGE")
    assert "--formats all" in answer.json()["error"]["message"]


def test_letters_are_sent_as_they_are(monkeypatch):
    monkeypatch.setattr("support.models.WORDS", ("größe", "a\u2028b"))
    url = f"data:image/png;base64,{base64.b64encode(IMAGE).decode()}"
    chat = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    ask = {"model": "captioner", "prompt": "", "images": [base64.b64encode(IMAGE).decode()]}
    with serve_http(FakeModel()) as (_, http):
        answers = [
            http.post("/v1/caption", content=IMAGE, headers=OCTETS, params={"attention": "true"}),
            http.post("/v1/caption:stream", content=IMAGE, headers=OCTETS),
            http.post("/api/generate", json=ask),
            http.post("/v1/chat/completions", json={**chat, "model": "captioner", "stream": True}),
        ]
    for answer in answers:
        assert answer.status_code == 200
        assert "größe" in answer.content.decode() and "\u2028" not in answer.content.decode()
