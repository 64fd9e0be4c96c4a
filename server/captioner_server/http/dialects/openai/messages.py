"""The messages of OpenAI's requests: their images and texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from starlette.requests import Request

from captioner.errors import clip
from captioner_server.errors import RequestError
from captioner_server.http.dialects.question.fields import NO_IMAGE, asked_last
from captioner_server.http.dialects.question.questions import Questions
from captioner_server.http.request.json_body import JsonBody

_IMAGES = {
    "image_url": '{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,..."}}',
    "input_image": '{"type": "input_image", "image_url": "data:image/jpeg;base64,..."}',
}
"""The types of parts that are images, and their forms."""
_LIKE_IMAGES = re.compile("image|file|media|document")


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
