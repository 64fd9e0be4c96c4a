"""Ollama's protocol: /api/generate, /api/chat, and the calls that describe models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captioner import __version__
from captioner.errors import CaptionerError
from captioner.model.info import ModelInfo
from captioner.readable_json import dump_json
from captioner_server.errors import RequestError, message_of
from captioner_server.http.dialects.answer.reply import JSON, Reply
from captioner_server.http.dialects.question.fields import (
    NO_IMAGE,
    asked_last,
    check_formats,
    check_prompt,
    most_tokens_of,
    stops_of,
    take,
)
from captioner_server.http.dialects.question.question import Question
from captioner_server.http.dialects.question.questions import Questions
from captioner_server.http.errors import error_response
from captioner_server.http.request.json_body import JsonBody
from captioner_server.intake.ticket import Ticket

VERSION = "0.12.0"
"""The version of Ollama whose protocol this is: programs compare it with what they need."""


class Ollama:
    """Reads and answers the calls. Errors are raised."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._started = _now()

    async def read_generate(self, request: Request) -> Question:
        body = await self._questions.read(request)
        record = body.record
        texts = [take(record, name, str, "") for name in ("system", "prompt")]
        images = _images_of(record)
        image = await self._questions.image(request, body, images, "images") if images else None
        if image is None and texts[1]:
            raise RequestError(NO_IMAGE, "images")
        return self._ask(image, body, texts)

    async def read_chat(self, request: Request) -> Question:
        body = await self._questions.read(request)
        record = body.record
        messages = take(record, "messages", list, [])
        if not all(isinstance(message, dict) for message in messages):
            raise RequestError("each message must be an object", "messages")
        if any(isinstance(one.get("content"), list) for one in messages):
            raise RequestError(
                "the content of a message must be a text; its images are beside it, in base64: "
                '{"role": "user", "content": "...", "images": ["..."]}',
                "messages",
            )
        with_images = [images for one in messages if (images := _images_of(one))]
        image = await self._questions.image(request, body, with_images[-1], "images") if with_images else None
        if image is None and messages:
            inside = "; those of a chat belong into a message" if record.get("images") else ""
            raise RequestError(NO_IMAGE + inside, "images")
        return self._ask(image, body, [take(one, "content", str, "") for one in asked_last(messages)])

    def _ask(self, image: bytes | None, body: JsonBody, texts: Sequence[str]) -> Question:
        return self._questions.ask(
            image,
            body,
            prompt=check_prompt(texts),
            format=_answer_format_of(body.record),
            stream=take(body.record, "stream", bool, True),
            **_limits_of(body.record),
        )

    async def generate(self, question: Question, ticket: Ticket) -> Response:
        # Some clients need the context, and send it back. It would say what was asked and answered before.
        return await self._answer(question, ticket, lambda text: {"response": text}, context=[])

    async def chat(self, question: Question, ticket: Ticket) -> Response:
        return await self._answer(
            question, ticket, lambda text: {"message": {"role": "assistant", "content": text}}
        )

    async def _answer(
        self, question: Question, ticket: Ticket, told: Callable[[str], dict[str, Any]], **last: Any
    ) -> Response:
        """An answer, in parts that are `told` each; the end has the fields of `last`."""
        head = {"model": question.model, "created_at": _now()}
        if question.image is None:  # how programs load a model before they use it
            return JSONResponse({**head, **told(""), "done": True, "done_reason": "load"})
        reply = await self._questions.reply(question, ticket)
        end = {"done": True, "done_reason": reply.finish, **last, **_usage(reply)}
        if not question.stream:
            return JSONResponse({**head, **told(reply.text), **end})
        parts = [{**head, **told(piece), "done": False} for piece in reply.pieces]
        return Response(_lines([*parts, {**head, **told(""), **end}]), media_type="application/x-ndjson")

    async def read_name(self, request: Request) -> str:
        """The model that /api/show asks about."""
        record = (await self._questions.read(request, image=False)).record
        return take(record, "model", str, "") or take(record, "name", str, "")

    async def tags(self, nothing: str, ticket: Ticket) -> Response:
        return JSONResponse({"models": [self._entry(name) for name in self._questions.names]})

    async def running(self, nothing: str, ticket: Ticket) -> Response:
        """All models are loaded as long as the server runs."""
        for_ever = {"expires_at": "9999-12-31T23:59:59Z", "size_vram": 0}
        return JSONResponse({"models": [{**self._entry(name), **for_ever} for name in self._questions.names]})

    async def show(self, name: str, ticket: Ticket) -> Response:
        about = self._questions.about(name)
        return JSONResponse(
            {
                "details": _details(about),
                "capabilities": ["completion", "vision"],
                "model_info": {
                    "general.architecture": "captioner",
                    "general.name": about.model,
                    "captioner.context_length": 2**12,
                },
                "modified_at": self._started,
                "modelfile": "",
                "parameters": "",
                "template": "{{ .Prompt }}",
                "license": "",
            }
        )

    async def version(self, nothing: str, ticket: Ticket) -> Response:
        return JSONResponse({"version": VERSION, "captioner": __version__})

    def _entry(self, name: str) -> dict[str, Any]:
        about = self._questions.about(name)
        full = f"{name}:latest"
        return {
            "name": full,
            "model": full,
            "modified_at": self._started,
            "size": 0,
            "digest": about.digest,
            "details": _details(about),
        }


def ollama_error(error: CaptionerError) -> Response:
    """An error as Ollama sends it."""
    return error_response(error, {"error": message_of(error)})


def _images_of(record: dict[str, Any]) -> list[Any]:
    """The images of a request or a message. Raises `RequestError`."""
    images = record.get("images")
    if images is not None and not isinstance(images, list):
        raise RequestError("images must be a list of texts in base64", "images")
    return images or []


def _limits_of(record: Any) -> dict[str, Any]:
    """What `Questions.ask` takes of the options of a request. Raises `RequestError`."""
    options = take(record, "options", dict, {})
    return {"most_tokens": most_tokens_of(options, "num_predict"), "stops": stops_of(options)}


def _answer_format_of(record: dict[str, Any]) -> Any:
    check_formats(record, "format")
    format = record.get("format") or None
    if format is None or format == JSON or isinstance(format, dict):
        return format
    raise RequestError('format must be "json" or a JSON schema', "format")


def _details(about: ModelInfo) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "onnx",
        "family": "captioner",
        "families": ["captioner"],
        "parameter_size": "",
        "quantization_level": about.precision,
    }


def _usage(reply: Reply) -> dict[str, int]:
    """Counts, and times in nanoseconds."""
    times = {name: round(seconds * 1e9) for name, seconds in reply.seconds.items()}
    return {
        "total_duration": sum(times.values()),
        "load_duration": times["queue"],
        "prompt_eval_count": reply.cells,
        "prompt_eval_duration": times["decode"],
        "eval_count": reply.words,
        "eval_duration": times["compute"],
    }


def _lines(records: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(dump_json(record, separators=(",", ":")).encode() + b"\n" for record in records)


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
