"""The requests of programs as they send them, and the part of the answer that they read."""

import base64
import json
from typing import Any

import pytest
from support.http_serving import IMAGE, expected, keywords

BASE64 = base64.b64encode(IMAGE).decode()
URL = f"data:image/jpeg;base64,{BASE64}"
PART = {"type": "image_url", "image_url": {"url": URL}}
TEXT, TEXTS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
TAGS = {"type": "object", "properties": {"tags": TEXTS}, "required": ["tags"], "additionalProperties": False}
QUESTION = "What's in this image?"

COMFYUI = {
    "model": "captioner:latest",
    "prompt": "Describe this image in detail",
    "system": "You are an AI artist.",
    "stream": False,
    "think": False,
    "raw": False,
    "images": [BASE64],
    "format": "",
    "options": {"seed": 7, "stop": ""},
    "keep_alive": "5m",
}
FRIGATE = {
    "model": "captioner:latest",
    "messages": [
        {
            "role": "user",
            "content": "Analyze the sequence of images containing the dog. Focus on its actions, rather than "
            "describing its appearance.\n[img]",
            "images": [BASE64],
        }
    ],
    "tools": [],
    "stream": False,
    "options": {"temperature": 0.5, "repeat_penalty": 1.05, "presence_penalty": 0.3},
}
HOME_ASSISTANT = {
    "model": "captioner:latest",
    "messages": [
        {"role": "system", "content": "You are a Home Assistant expert and help users with their tasks."},
        {"role": "user", "content": "What is at the door?", "images": [BASE64]},
    ],
    "tools": [],
    "stream": True,
    "think": False,
    "options": {"num_ctx": 8192},
    "keep_alive": -1,
    "format": {
        "type": "object",
        "properties": {
            "description": {"type": "string", "description": "What the camera sees"},
            "visitors": {"type": "number", "description": "How many people there are"},
        },
        "required": ["description"],
    },
}
IMAGE_INDEXER = {
    "max_tokens": 150,
    "temperature": 0.2,
    "rep_pen": 1.01,
    "use_default_badwordsids": False,
    "chat_template_kwargs": {"enable_thinking": False},
    "messages": [
        {"role": "system", "content": "You describe the image in detail with a caption and keywords."},
        {"role": "user", "content": [PART, {"type": "text", "text": "Generate a caption and keywords."}]},
    ],
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "caption_and_keywords",
            "schema": {
                "type": "object",
                "properties": {"Description": TEXT, "Keywords": TEXTS},
                "required": ["Description", "Keywords"],
            },
        },
    },
}
KARAKEEP = {
    "model": "captioner",
    "stream": True,
    "format": {"$schema": "https://json-schema.org/draft/2020-12/schema", **TAGS},
    "options": {"num_ctx": 2048, "num_predict": 2048},
    "prompt": "Analyze the attached image and suggest relevant tags that describe its key themes.\n"
    '- Aim for 10-15 tags.\nRespond in valid JSON with the key "tags" and the value is list of tags.',
    "images": [BASE64],
}
KARAKEEP_OPENAI = {
    "model": "captioner",
    "max_completion_tokens": 2048,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "schema", "strict": True, "schema": TAGS},
    },
    "messages": [{"role": "user", "content": [{"type": "text", "text": KARAKEEP["prompt"]}, PART]}],
}
N8N = {
    "model": "captioner:latest",
    "messages": [{"role": "user", "content": QUESTION, "images": [BASE64]}],
    "stream": False,
    "options": {"num_predict": 1024, "keep_alive": "5m", "format": "", "stop": ""},
}
N8N_OPENAI = {
    "model": "captioner",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": QUESTION},
                {"type": "input_image", "detail": "auto", "image_url": URL},
            ],
        }
    ],
    "max_output_tokens": 300,
}
NEXTCLOUD = {
    "model": "captioner",
    "messages": [
        {"role": "system", "content": "Take the user's question and answer it based on the provided images."},
        {"role": "user", "content": [PART, {"type": "text", "text": "What is this?"}]},
    ],
    "n": 1,
    "stream": False,
    "max_completion_tokens": 1000,
}
NVDA = {
    "model": "captioner:latest",
    "messages": [
        {"role": "user", "content": "Describe this image succinctly.", "images": [BASE64]},
        {"role": "assistant", "content": "a dog"},
        {"role": "user", "content": "what color is the dog?", "images": [BASE64]},
    ],
    "stream": False,
}
SILLYTAVERN = {
    "model": "captioner:latest",
    "prompt": "What's in this image?",
    "images": [BASE64],
    "stream": False,
}


def read(answer: Any) -> str:
    """The text of an answer, whatever its protocol, whole or streamed."""
    parts = [json.loads(line) for line in answer.text.splitlines()]
    if "choices" in parts[0]:
        return parts[0]["choices"][0]["message"]["content"]
    if "output" in parts[0]:
        return parts[0]["output"][0]["content"][0]["text"]
    return "".join(part["response"] if "response" in part else part["message"]["content"] for part in parts)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/generate", COMFYUI),
        ("/api/chat", FRIGATE),
        ("/api/chat", N8N),
        ("/v1/responses", N8N_OPENAI),
        ("/v1/chat/completions", NEXTCLOUD),
        ("/api/chat", NVDA),
        ("/api/generate", SILLYTAVERN),
    ],
    ids=["comfyui", "frigate", "n8n", "n8n openai", "nextcloud", "nvda", "sillytavern"],
)
def test_programs_that_ask_for_a_text_get_the_caption(http, http_server, path, body) -> None:
    answer = http.post(path, json=body)
    assert (answer.status_code, read(answer)) == (200, expected(http_server)["caption"])


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/api/chat", HOME_ASSISTANT, {"description": "caption"}),
        ("/v1/chat/completions", IMAGE_INDEXER, {"Description": "caption", "Keywords": "keywords"}),
        ("/api/generate", KARAKEEP, {"tags": "keywords"}),
        ("/v1/chat/completions", KARAKEEP_OPENAI, {"tags": "keywords"}),
    ],
    ids=["home assistant", "imageindexer", "karakeep", "karakeep openai"],
)
def test_programs_that_ask_for_fields_get_them(http, http_server, path, body, named) -> None:
    known = {"caption": expected(http_server)["caption"], "keywords": keywords(http_server)}
    answer = http.post(path, json=body)
    assert json.loads(read(answer)) == {name: known[kind] for name, kind in named.items()}
