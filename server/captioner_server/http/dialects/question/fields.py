"""Fields that requests of several protocols have, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from captioner.options import MAX_WORDS
from captioner_server.errors import RequestError
from captioner_server.http.request.json_body import LONG_TEXT_BYTES, LongText

T = TypeVar("T")

NO_IMAGE = "the request has no image: captioner captions images and does not chat"
_FORMATS = (
    *("ebnf", "format", "function_call", "grammar", "guided_choice", "guided_grammar", "guided_json"),
    *("guided_regex", "json_schema", "regex", "response_format", "structured_outputs"),
)
"""Fields in which requests of one protocol or of one server say what form the answer must have."""
_NO_FORMATS = ("auto", "none", {"type": "text"})
_KINDS: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
    int: "a number",
}


def take(record: Any, name: str, kind: type[T], default: T) -> T:
    """A field of a request; the default where it is not given. Raises `RequestError` for another type."""
    value = record.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise RequestError(f"{name} must be {_KINDS[kind]}", name)
    return value


def most_tokens_of(record: Any, *names: str) -> int | None:
    """The most tokens of an answer, in the first of these fields; None for no limit, also where it is below 1
    or more than any caption has. Raises `RequestError`."""
    for name in names:
        if (value := record.get(name)) is not None:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise RequestError(f"{name} must be a number", name)
            return int(value) if 1 <= value <= MAX_WORDS else None
    return None


def stops_of(record: Any) -> tuple[str, ...]:
    """The texts in the field `stop`, before which the answer ends. Raises `RequestError`."""
    stop = record.get("stop")
    stops = [stop] if isinstance(stop, str) else take(record, "stop", list, [])
    if not all(isinstance(one, str) for one in stops):
        raise RequestError("stop must be a text or a list of texts", "stop")
    return tuple(filter(None, stops))


def check_formats(record: Any, own: str) -> None:
    """Raises `RequestError` where a field of other protocols says what form the answer must have: it would
    not have it. The protocol's `own` field for it is another."""
    for name in _FORMATS:
        if name != own and (value := record.get(name)) and value not in _NO_FORMATS:
            raise RequestError(f"{name} is not understood; a format of the answer belongs into {own}", name)


def check_prompt(texts: Sequence[str]) -> str:
    """The texts of a request as one prompt. Raises `RequestError` for one that is too long to be one."""
    if any(isinstance(text, LongText) for text in texts):
        raise RequestError(f"a text that is no image has at most {LONG_TEXT_BYTES} bytes", "prompt")
    return "\n".join(texts)


def asked_last(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that say what is asked now: those of the system, and those after the last answer."""
    system: list[dict[str, Any]] = []
    asked: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") == "assistant":
            asked.clear()
        else:
            (system if message.get("role") in ("system", "developer") else asked).append(message)
    return [*system, *asked]
