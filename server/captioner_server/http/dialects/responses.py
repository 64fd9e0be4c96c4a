"""OpenAI's /v1/responses."""

from __future__ import annotations

import random
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captioner_server.errors import RequestError
from captioner_server.http.dialects.openai import answer_format_of, events, image_and_texts
from captioner_server.http.dialects.question import Question, Questions, check_prompt, most_tokens_of, take
from captioner_server.http.dialects.reply import Reply
from captioner_server.intake.ticket import Ticket


class Responses:
    """Reads and answers the call. Errors are raised."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def read(self, request: Request) -> Question:
        body = await self._questions.read(request)
        record = body.record
        asked = record.get("input")
        messages = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise RequestError("input must be a text or a list of messages", "input")
        image, texts = await image_and_texts(self._questions, request, body, messages, "input")
        texts.append(take(record, "instructions", str, ""))
        return self._questions.ask(
            image,
            body,
            prompt=check_prompt(body, texts),
            format=answer_format_of(take(record, "text", dict, {}).get("format")),
            stream=take(record, "stream", bool, False),
            most_tokens=most_tokens_of(record, "max_output_tokens"),
        )

    async def answer(self, question: Question, ticket: Ticket) -> Response:
        reply = await self._questions.reply(question, ticket)
        part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"id": _new("msg"), "type": "message", "role": "assistant", "status": _status(reply)}
        whole = _response(question, {**message, "content": [part]}, reply)
        if not question.stream:
            return JSONResponse(whole)
        place = {"item_id": message["id"], "output_index": 0, "content_index": 0}
        begun = {**whole, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        started = {**message, "status": "in_progress", "content": []}
        told: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
            ("response.output_item.added", {"output_index": 0, "item": started}),
            ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
            *(
                ("response.output_text.delta", {**place, "delta": one, "logprobs": []})
                for one in reply.pieces
            ),
            ("response.output_text.done", {**place, "text": reply.text, "logprobs": []}),
            ("response.content_part.done", {**place, "part": part}),
            ("response.output_item.done", {"output_index": 0, "item": whole["output"][0]}),
            (f"response.{_status(reply)}", {"response": whole}),
        ]
        return events(
            [
                {"type": kind, **fields, "sequence_number": number}
                for number, (kind, fields) in enumerate(told)
            ],
            named=True,
        )


def _status(reply: Reply) -> str:
    return "incomplete" if reply.is_cut else "completed"


def _response(question: Question, message: dict[str, Any], reply: Reply) -> dict[str, Any]:
    return {
        "id": _new("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": _status(reply),
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if reply.is_cut else None,
        "instructions": None,
        "metadata": {},
        "model": question.model,
        "output": [message],
        "parallel_tool_calls": False,
        "temperature": None,
        "tool_choice": "none",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": reply.cells,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.words,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.cells + reply.words,
        },
    }


def _new(kind: str) -> str:
    return f"{kind}_{random.getrandbits(96):024x}"
