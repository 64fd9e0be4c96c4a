"""OpenAI's /v1/responses."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captioner_server.errors import RequestError
from captioner_server.http.dialects.answer.reply import Reply
from captioner_server.http.dialects.openai.answers import events, new_id
from captioner_server.http.dialects.openai.formats import answer_format_of, forced_function
from captioner_server.http.dialects.openai.messages import image_and_texts
from captioner_server.http.dialects.question.fields import (
    check_formats,
    check_prompt,
    most_tokens_of,
    take,
)
from captioner_server.http.dialects.question.question import Question
from captioner_server.http.dialects.question.questions import Questions
from captioner_server.intake.ticket import Ticket

_Event = tuple[str, dict[str, Any]]
"""Its type and its other fields."""


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
        check_formats(record, "text.format")
        function = forced_function(record)
        image, texts = await image_and_texts(self._questions, request, body, messages, "input")
        texts.append(take(record, "instructions", str, ""))
        text = take(record, "text", dict, {})
        question = self._questions.ask(
            image,
            body,
            prompt=check_prompt(texts),
            format=function.parameters if function else answer_format_of(text.get("format")),
            stream=take(record, "stream", bool, False),
            most_tokens=most_tokens_of(record, "max_output_tokens"),
        )
        return dataclasses.replace(
            question,
            format_field="tools" if function else "text.format",
            function=function.name if function else "",
        )

    async def answer(self, question: Question, ticket: Ticket) -> Response:
        reply = await self._questions.reply(question, ticket)
        item, pieces = _called(question, reply) if question.function else _told(reply)
        whole = _response(question, item, reply)
        if not question.stream:
            return JSONResponse(whole)
        begun = {**whole, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
        told: list[_Event] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
            *pieces,
            ("response.output_item.done", {"output_index": 0, "item": item}),
            (f"response.{_status(reply)}", {"response": whole}),
        ]
        return events(
            [
                {"type": kind, **fields, "sequence_number": number}
                for number, (kind, fields) in enumerate(told)
            ],
            named=True,
        )


def _told(reply: Reply) -> tuple[dict[str, Any], list[_Event]]:
    """The text in a message, whole and in pieces."""
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    message = {"id": new_id("msg_"), "type": "message", "role": "assistant", "status": _status(reply)}
    place = {"item_id": message["id"], "output_index": 0, "content_index": 0}
    started = {**message, "status": "in_progress", "content": []}
    return {**message, "content": [part]}, [
        ("response.output_item.added", {"output_index": 0, "item": started}),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *(("response.output_text.delta", {**place, "delta": one, "logprobs": []}) for one in reply.pieces),
        ("response.output_text.done", {**place, "text": reply.text, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
    ]


def _called(question: Question, reply: Reply) -> tuple[dict[str, Any], list[_Event]]:
    """The call of a function, whole and in pieces."""
    call = {
        "id": new_id("fc_"),
        "type": "function_call",
        "call_id": new_id("call_"),
        "name": question.function,
    }
    place = {"item_id": call["id"], "output_index": 0}
    started = {**call, "status": "in_progress", "arguments": ""}
    done = {"name": question.function, "arguments": reply.text}
    return {**call, "status": "completed", "arguments": reply.text}, [
        ("response.output_item.added", {"output_index": 0, "item": started}),
        ("response.function_call_arguments.delta", {**place, "delta": reply.text}),
        ("response.function_call_arguments.done", {**place, **done}),
    ]


def _status(reply: Reply) -> str:
    return "incomplete" if reply.is_cut else "completed"


def _response(question: Question, item: dict[str, Any], reply: Reply) -> dict[str, Any]:
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "status": _status(reply),
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if reply.is_cut else None,
        "instructions": None,
        "metadata": {},
        "model": question.model,
        "output": [item],
        "parallel_tool_calls": False,
        "temperature": None,
        "tool_choice": "required" if question.function else "none",
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
