"""The text that answers a question, and what it took."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from captioner.results import Caption
from captioner.surrogates import escape_surrogates
from captioner_server.errors import RequestError
from captioner_server.http.dialects import prompt as prompts
from captioner_server.http.dialects.facts import Facts
from captioner_server.http.dialects.schema import fill_schema, schema_of

JSON = "json"
"""The format of JSON of any shape."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a question, whatever its protocol."""

    text: str
    cells: int
    """Cells of the image that the model looked at: the tokens of the request."""
    words: int
    """Words of the caption, and its end if it was not cut: the tokens of the answer."""
    seconds: dict[str, float]
    """What its stages took."""
    is_cut: bool = False
    """Whether the answer has as many tokens as the request allows, and so no end."""

    @property
    def finish(self) -> str:
        """Why it ends, in the words of Ollama and OpenAI."""
        return "length" if self.is_cut else "stop"

    @property
    def pieces(self) -> list[str]:
        """The text word by word; together they are the text."""
        return re.findall(r"\s*\S+\s*?(?=\s|$)|\s+$", self.text)


def is_json(prompt: str, format: Any) -> bool:
    """Whether the answer is JSON, which stays whole."""
    return format is not None or prompts.asks_for_json(prompt)


def before(text: str, stops: Sequence[str]) -> str:
    """The part of a text that stands before the first of these."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


def text_of(caption: Caption, prompt: str, format: Any) -> str:
    """The caption, or what the prompt or the format ask for instead. `format` is None, `JSON` or a schema.
    Raises `RequestError` where the format cannot be met."""
    facts = Facts.of(caption)
    if isinstance(format, (dict, bool)):
        return _dump(fill_schema(format, facts))
    if format == JSON or prompts.asks_for_json(prompt):
        return _dump(_any_json(facts, prompt))
    if prompts.asks_for_alt_text(prompt):
        return facts.alt_text
    if prompts.asks_for_keywords(prompt):
        return ", ".join(keyword.text for keyword in facts.keywords)
    return caption.text


def _any_json(facts: Facts, prompt: str) -> Any:
    """In the shape that the prompt shows, if it shows one that can be filled."""
    if (shape := prompts.shape_in(prompt)) is not None:
        with suppress(RequestError, RecursionError):
            return fill_schema(schema_of(shape), facts)
    keywords = [keyword.text for keyword in facts.keywords]
    if prompts.asks_for_json_list(prompt):
        return keywords
    labels = [{"name": one.text, "confidence": round(one.probability, 4)} for one in facts.keywords]
    return {"caption": facts.caption, "keywords": keywords, "labels": labels}


def _dump(value: Any) -> str:
    """As JSON, with lone surrogates escaped, which UTF-8 cannot encode. Raises `RequestError`."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise RequestError(
            "the format has a number that is not finite, or too many brackets", "format"
        ) from None
    return escape_surrogates(text)
