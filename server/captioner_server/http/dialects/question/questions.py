"""Requests of every protocol: the parts that they share are read, and their questions are answered."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from captioner.errors import clip
from captioner.images.urls import is_url
from captioner.model.info import ModelInfo
from captioner.options import CaptionOptions
from captioner_server.captioning.models import Models
from captioner_server.errors import ModelNotFoundError, RequestError
from captioner_server.http.dialects.answer.reply import Reply, before, is_json, text_of
from captioner_server.http.dialects.question.fetcher import Fetcher
from captioner_server.http.dialects.question.fields import take
from captioner_server.http.dialects.question.question import Question
from captioner_server.http.off_loop import off_loop
from captioner_server.http.request.body import read_body
from captioner_server.http.request.json_body import LONG_TEXT_BYTES, JsonBody, LongText, parse_json
from captioner_server.intake.door import MAX_SMALL_BYTES
from captioner_server.intake.ticket import Ticket, current_ticket
from captioner_server.observation.call import current_call
from captioner_server.options import ServerOptions

OWN_NAMES = ("captioner", "default")
"""Names of the default model, beside that which it is served as."""
_MOST_VALUES = 2**12
_REST_BYTES = 2**18
"""Most bytes of a request beside its images: prompts, a schema, earlier messages."""
_CONTEXT = re.compile(rb'"context"\s*:\s*(\[[\s\d,]*\])')
_DEFAULTS = CaptionOptions(attention=False)


class Questions:
    """Reads the parts that requests of all protocols have, and answers them."""

    def __init__(self, models: Models, options: ServerOptions) -> None:
        self._models, self._options = models, options
        self._fetcher = Fetcher(options.max_image_bytes) if options.allow_urls else None

    async def read(self, request: Request, *, image: bool = True) -> JsonBody:
        """The body of a request with an `image` or without, an object. Raises a `RequestError` or an
        `ImageError`."""
        limits = self._options
        largest = limits.max_image_bytes if image else MAX_SMALL_BYTES
        most = min(largest * 4 // 3 + _REST_BYTES, limits.max_message_bytes) if image else largest
        content = await read_body(request, most, largest)
        body = _parse(content) if len(content) <= LONG_TEXT_BYTES else await off_loop(_parse, content)
        if not isinstance(body.record, dict):
            raise RequestError("the body must be a JSON object", "body")
        return body

    async def image(self, request: Request, body: JsonBody, texts: Sequence[Any], field: str) -> bytes:
        """The one image of a request, in base64, as a data URL, or from a URL if the server allows that. The
        body of the request has been read."""
        if len(texts) != 1:
            raise RequestError(f"captioner captions one image in a request, not {len(texts)}", field)
        [text] = texts
        if not isinstance(text, str):
            raise RequestError(f"an image must be a text in base64, not {_kind_of(text)}", field)
        if not is_url(text):
            return (
                await off_loop(body.image, text, field)
                if isinstance(text, LongText)
                else body.image(text, field)
            )
        if self._fetcher is None:
            raise RequestError(
                "images come as base64 or data URLs; this server fetches no URLs (--allow-urls)", field
            )
        return await self._fetcher.fetch(text, request, current_ticket.get())

    def ask(
        self,
        image: bytes | None,
        body: JsonBody,
        *,
        prompt: str,
        format: Any,
        stream: bool,
        most_tokens: int | None,
        stops: tuple[str, ...] = (),
    ) -> Question:
        """The question of a request. Raises `ModelNotFoundError`."""
        name = take(body.record, "model", str, "")
        served_as = self.served_as(name)
        options = self._models.get(served_as).search.resolve(_DEFAULTS)
        if most_tokens is not None:
            options = dataclasses.replace(
                options, max_words=min(most_tokens, options.max_words or most_tokens)
            )
        model = name or OWN_NAMES[0]
        return Question(image, options, served_as, model, prompt, format, stream, most_tokens, stops)

    def served_as(self, name: str) -> str:
        """The name by which a model is served that a request names; "" for the default. Raises
        `ModelNotFoundError`."""
        plain = name.removesuffix(":latest")
        if plain in self._models.names:
            return plain
        if plain in ("", *OWN_NAMES):
            return ""
        raise ModelNotFoundError(f"there is no model {clip(name, 100)!r}, only {', '.join(self.names)}")

    @property
    def names(self) -> list[str]:
        """The names that requests may use, that of the default model first."""
        return list(dict.fromkeys((*OWN_NAMES, *self._models.names)))

    def about(self, name: str) -> ModelInfo:
        """The model of a name as requests use it."""
        return self._models.describe(self.served_as(name))

    async def reply(self, question: Question, ticket: Ticket) -> Reply:
        """Caption the image."""
        assert question.image is not None
        hosted = self._models.get(question.served_as)
        with hosted.enter(ticket, question.options):
            caption = await hosted.caption(ticket, question.image, question.options)
        text, is_cut = text_of(caption, question.prompt, question.format, question.format_field), False
        if not is_json(question.prompt, question.format):
            whole, text = text, before(text, question.stops)
            is_cut = text == whole and len(caption.words) == question.most_tokens
        rows, columns = hosted.model.grid
        tokens = len(caption.words) + (not is_cut)
        return Reply(text, rows * columns, tokens, dict(current_call.get().seconds), is_cut)


def _parse(content: bytearray) -> JsonBody:
    """Without the context of Ollama's earlier answers, which some clients send back: thousands of numbers."""
    if context := _CONTEXT.search(content):
        start, end = context.span(1)
        del context  # it keeps the body as large as it is
        content[start:end] = b"0"
    return parse_json(content, _MOST_VALUES, _REST_BYTES)


def _kind_of(value: Any) -> str:
    """What a value is that is no text."""
    kinds: dict[type, str] = {list: "a list", dict: "an object", type(None): "null"}
    return kinds.get(type(value), "a number")
