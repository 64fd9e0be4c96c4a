"""What OpenAI's calls have in common: models, messages, formats, errors."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captioner.errors import CaptionerError, clip
from captioner_server.errors import RequestError, field_of, message_of
from captioner_server.http.dialects.question import NO_IMAGE, Questions, asked_last
from captioner_server.http.dialects.reply import JSON
from captioner_server.http.errors import error_response, status_of
from captioner_server.http.request.json_body import JsonBody
from captioner_server.intake.ticket import Ticket

_IMAGES = {
    "image_url": '{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,..."}}',
    "input_image": '{"type": "input_image", "image_url": "data:image/jpeg;base64,..."}',
}
"""The types of parts that are images, and their forms."""
_LIKE_IMAGES = re.compile("image|file|media|document")
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
_TYPES |= {404: "invalid_request_error", 413: "invalid_request_error", 429: "rate_limit_error"}


class OpenAIModels:
    """Answers /v1/models. Errors are raised."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._created = int(time.time())

    async def read_name(self, request: Request) -> str:
        """The model in the path; "" for all."""
        return str(request.path_params.get("model", ""))

    async def list(self, nothing: str, ticket: Ticket) -> Response:
        return JSONResponse({"object": "list", "data": [self._entry(name) for name in self._questions.names]})

    async def one(self, name: str, ticket: Ticket) -> Response:
        self._questions.served_as(name)
        return JSONResponse(self._entry(name))

    def _entry(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "captioner"}


def show_error(error: CaptionerError) -> Response:
    """An error as OpenAI sends it."""
    status = status_of(error)
    content = {
        "message": message_of(error),
        "type": _TYPES.get(status, "server_error"),
        "param": "model" if error.code == "model_not_found" else field_of(error) or None,
        "code": error.code,
    }
    return error_response(error, {"error": content})


async def image_and_texts(
    questions: Questions, request: Request, body: JsonBody, messages: Sequence[dict[str, Any]], field: str
) -> tuple[bytes, list[str]]:
    """The image of the last message with one, and the texts of what is asked now; `field` holds the messages.
    Raises `RequestError` if no message has an image."""
    for message in reversed(messages):
        if images := images_of(parts_of(message), field):
            break
    else:
        raise RequestError(NO_IMAGE, field)
    image = await questions.image(request, body, images, "image_url")
    return image, [text for one in asked_last(messages) for text in texts_of(parts_of(one))]


def parts_of(message: Any) -> list[dict[str, Any]]:
    """The parts of a message, whose content is a text or a list of parts. Raises `RequestError`."""
    content = message.get("content") if isinstance(message, dict) else message
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise RequestError("the content of a message must be a text or a list of parts", "messages")
    return content


def texts_of(parts: Iterable[dict[str, Any]]) -> list[str]:
    return [part["text"] for part in parts if isinstance(part.get("text"), str)]


def images_of(parts: Iterable[dict[str, Any]], field: str) -> list[Any]:
    """The images among parts, as data URLs or other URLs; `field` holds the messages. Raises `RequestError`
    for images in forms of other protocols."""
    images = []
    for part in parts:
        kind = part.get("type")
        image = part.get("image_url")
        if kind in _IMAGES and image is not None:
            images.append(image.get("url") if isinstance(image, dict) else image)
        elif isinstance(kind, str) and _LIKE_IMAGES.search(kind):
            form = _IMAGES.get(kind, _IMAGES["image_url" if field == "messages" else "input_image"])
            raise RequestError(
                f"the image in a part of type {clip(kind, 50)!r} is not understood; send it as {form}", field
            )
    return images


def answer_format_of(format: Any) -> Any:
    """The format of an answer: None, "json" or a schema. Raises `RequestError`."""
    if format is None or (isinstance(format, dict) and format.get("type") == "text"):
        return None
    if not isinstance(format, dict):
        raise RequestError("the format of the answer must be an object", "response_format")
    if format.get("type") == "json_object":
        return _schema_in(format)  # as llama.cpp and others accept it
    if format.get("type") == "json_schema":
        return _schema_in(format.get("json_schema", format))
    return format  # a schema itself, as Ollama accepts it under this name


def _schema_in(described: Any) -> Any:
    schema = described.get("schema") if isinstance(described, dict) else None
    return schema or JSON


def events(records: Sequence[dict[str, Any]], *, named: bool = False, end: bytes = b"") -> Response:
    """Server-sent events, each named by its type or not."""
    content = b"".join(
        (b"event: %s\n" % record["type"].encode() if named else b"")
        + b"data: %s\n\n" % json.dumps(record, separators=(",", ":")).encode()
        for record in records
    )
    return Response(content + end, media_type="text/event-stream")
