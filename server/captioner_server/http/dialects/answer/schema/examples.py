"""Schemas that examples of an answer stand for."""

from __future__ import annotations

import re
from typing import Any

from captioner_server.http.dialects.answer.schema.descriptions import MOST_READ, begins_with_unknown

_ANY_CASE = re.IGNORECASE
_TYPES = {
    "array": re.compile(r'^\W*(?:an? )?(?:json )?(?:array|list)\b|^\W*\w+\[\]|"type": ?"array"', _ANY_CASE),
    "number": re.compile(
        r"^\W*(?:an? )?(?:integer|int|float)\b|^\W*number\b|^\W*a number\W*$|\bsingle (?:int|float)\b",
        _ANY_CASE,
    ),
    "boolean": re.compile(r"^\W*(?:an? )?bool(?:ean)?\b|\bmust be true or false\b", _ANY_CASE),
}


def schema_of(example: Any) -> Any:
    """The schema that an example of an answer stands for, none of whose fields is required."""
    if isinstance(example, dict):
        if isinstance(example.get("properties"), dict):
            return example  # a schema already
        return {"type": "object", "properties": {name: schema_of(value) for name, value in example.items()}}
    if isinstance(example, list):
        return {"type": "array", "items": schema_of(example[0]) if example else {"type": "string"}}
    if isinstance(example, str):
        return _shown(example)
    kinds = {bool: "boolean", int: "number", float: "number"}
    return {"type": kinds.get(type(example), "null")}


def described(text: str) -> dict[str, Any]:
    """The schema of what a text describes: "array of strings", "yes or no", "a caption"."""
    text = text[:MOST_READ]
    kind = next((kind for kind, words in _TYPES.items() if words.search(text)), None)
    return {"description": text, **({"type": kind} if kind else {})}


def _shown(text: str) -> dict[str, Any]:
    """The schema of a text in an example, which may also describe what belongs in its place."""
    schema = {"type": "string", **described(text)}
    return schema if begins_with_unknown(text[:MOST_READ]) else {**schema, "description": ""}
