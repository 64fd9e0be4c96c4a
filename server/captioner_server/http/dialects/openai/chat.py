"""OpenAI's /v1/chat/completions."""

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
    stops_of,
    take,
)
from captioner_server.http.dialects.question.question import Question
from captioner_server.http.dialects.question.questions import Questions
from captioner_server.intake.ticket import Ticket


class ChatCompletions:
    """Reads and answers the call. Errors are raised."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def read(self, request: Request) -> Question:
        body = await self._questions.read(request)
        record = body.record
        messages = take(record, "messages", list, [])
        if not all(isinstance(message, dict) for message in messages):
            raise RequestError("each message must be an object", "messages")
        if record.get("n") not in (None, 1):
            raise RequestError("n must be 1", "n")
        check_formats(record, "response_format")
        function = forced_function(record)
        image, texts = await image_and_texts(self._questions, request, body, messages, "messages")
        question = self._questions.ask(
            image,
            body,
            prompt=check_prompt(texts),
            format=function.parameters if function else answer_format_of(record.get("response_format")),
            stream=take(record, "stream", bool, False),
            most_tokens=most_tokens_of(record, "max_completion_tokens", "max_tokens"),
            stops=stops_of(record),
        )
        streaming = take(record, "stream_options", dict, {})
        return dataclasses.replace(
            question,
            format_field="tools" if function else "response_format",
            function=function.name if function else "",
            include_usage=take(streaming, "include_usage", bool, False),
        )

    async def answer(self, question: Question, ticket: Ticket) -> Response:
        reply = await self._questions.reply(question, ticket)
        head = {"id": new_id("chatcmpl-"), "created": int(time.time())}
        head |= {"model": question.model, "system_fingerprint": None}
        message, deltas = _called(question, reply) if question.function else _told(reply)
        end = "tool_calls" if question.function else reply.finish
        if not question.stream:
            message = {"role": "assistant", **message, "refusal": None}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": end}
            return JSONResponse(
                {**head, "object": "chat.completion", "choices": [choice], "usage": _usage(reply)}
            )
        head |= {"object": "chat.completion.chunk"}
        deltas[0] = {"role": "assistant", **deltas[0]}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
            for delta, reason in (*((delta, None) for delta in deltas), ({}, end))
        ]
        if question.include_usage:
            chunks.append({**head, "choices": [], "usage": _usage(reply)})
        return events(chunks, end=b"data: [DONE]\n\n")


def _told(reply: Reply) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The text in a message, whole and in pieces."""
    return {"content": reply.text}, [{"content": piece} for piece in ("", *reply.pieces)]


def _called(question: Question, reply: Reply) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The call of a function in a message, whole and in pieces."""
    call = {"id": new_id("call_"), "type": "function"}
    function = {"name": question.function, "arguments": reply.text}
    begun = {"index": 0, **call, "function": {**function, "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": reply.text}}
    whole = {"content": None, "tool_calls": [{**call, "function": function}]}
    return whole, [{"content": None, "tool_calls": [begun]}, {"tool_calls": [rest]}]


def _usage(reply: Reply) -> dict[str, int]:
    return {
        "prompt_tokens": reply.cells,
        "completion_tokens": reply.words,
        "total_tokens": reply.cells + reply.words,
    }
