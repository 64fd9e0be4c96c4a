"""OpenAI's /v1/models."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from captioner_server.http.dialects.question.questions import Questions
from captioner_server.intake.ticket import Ticket


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
