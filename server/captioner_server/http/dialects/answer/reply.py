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
from captioner_server.http.dialects.answer.facts import Facts
from captioner_server.http.dialects.answer.prompt import wording
from captioner_server.http.dialects.answer.prompt.shapes import keys_in, shape_in
from captioner_server.http.dialects.answer.schema.examples import described, schema_of
from captioner_server.http.dialects.answer.schema.fill import fill_schema

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
    """What `queue`, `decode` and `compute` took."""
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
    return format is not None or wording.asks_for_json(prompt)


def before(text: str, stops: Sequence[str]) -> str:
    """The part of a text that stands before the first of these."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]


def text_of(caption: Caption, prompt: str, format: Any, field: str = "format") -> str:
    """The caption, or what the prompt or the format ask for instead. `format` is None, `JSON` or a schema.
    Raises `RequestError`, about the `field` of the request that holds the format, where it cannot be met."""
    facts = Facts.of(caption)
    if isinstance(format, (dict, bool)):
        return _dump(fill_schema(format, facts, field), field)
    if format == JSON or wording.asks_for_json(prompt):
        return _dump(_any_json(facts, prompt), field)
    is_alt_text = wording.asks_for_alt_text(prompt)
    sentence = facts.alt_text if is_alt_text else facts.caption
    if not wording.asks_for_keywords(prompt):
        return sentence
    between = wording.separator_in(prompt)
    if wording.asks_for_hashtags(prompt):
        keywords = (between or " ").join(keyword.hashtag for keyword in facts.keywords)
    else:
        keywords = (between or ", ").join(keyword.text for keyword in facts.keywords)
    if is_alt_text or wording.asks_for_sentence(prompt):
        return f"{sentence}\n\n{keywords}" if keywords else sentence
    return keywords


def _any_json(facts: Facts, prompt: str) -> Any:
    """In the shape that the prompt shows, or with the keys that it names, if these can be filled."""
    shown = shape_in(prompt)
    known = shown if isinstance(shown, dict) else {}  # says more of a key than its name does
    keys = {name: described(what) for name, what in keys_in(prompt).items() if name not in known}
    named: Any = {"properties": keys}
    for shape in (shown, named if named["properties"] else None):
        if shape:
            with suppress(RequestError, RecursionError):
                return fill_schema(schema_of(shape), facts)
    keywords = [keyword.text for keyword in facts.keywords]
    if wording.asks_for_json_list(prompt):
        return keywords
    labels = [{"name": one.text, "confidence": round(one.probability, 4)} for one in facts.keywords]
    return {"caption": facts.caption, "keywords": keywords, "labels": labels}


def _dump(value: Any, field: str) -> str:
    """As JSON, with lone surrogates escaped, which UTF-8 cannot encode. Raises `RequestError`."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        raise RequestError(
            "the format has a number that is not finite, or too many brackets", field
        ) from None
    return escape_surrogates(text)
