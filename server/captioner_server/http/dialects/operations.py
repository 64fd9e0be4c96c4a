"""The calls of all protocols of other programs."""

from __future__ import annotations

from typing import Any

from captioner_server.captioning.models import Models
from captioner_server.http.dialects.ollama import Ollama, ollama_error
from captioner_server.http.dialects.openai.chat import ChatCompletions
from captioner_server.http.dialects.openai.errors import openai_error
from captioner_server.http.dialects.openai.models import OpenAIModels
from captioner_server.http.dialects.openai.responses import Responses
from captioner_server.http.dialects.question.question import Question
from captioner_server.http.dialects.question.questions import Questions
from captioner_server.http.endpoint import Operation, read_nothing
from captioner_server.intake.ticket import Kind
from captioner_server.options import ServerOptions


def dialect_operations(models: Models, options: ServerOptions) -> list[Operation[Any]]:
    """The calls of Ollama and OpenAI."""
    questions = Questions(models, options)
    o, chat, responses = Ollama(questions), ChatCompletions(questions), Responses(questions)
    listed = OpenAIModels(questions)
    query, image, size = Kind.QUERY, Kind.IMAGE, Question.size_of
    return [
        Operation("POST /api/generate", image, o.read_generate, size, o.generate, ollama_error),
        Operation("POST /api/chat", image, o.read_chat, size, o.chat, ollama_error),
        Operation("POST /api/show", query, o.read_name, len, o.show, ollama_error),
        Operation("GET /api/tags", query, read_nothing, len, o.tags, ollama_error),
        Operation("GET /api/ps", query, read_nothing, len, o.running, ollama_error),
        Operation("GET /api/version", query, read_nothing, len, o.version, ollama_error),
        Operation("POST /v1/chat/completions", image, chat.read, size, chat.answer, openai_error),
        Operation("POST /v1/responses", image, responses.read, size, responses.answer, openai_error),
        Operation("GET /v1/models", query, listed.read_name, len, listed.list, openai_error),
        Operation("GET /v1/models/{model}", query, listed.read_name, len, listed.one, openai_error),
    ]
