"""What a JSON schema says of texts, numbers and lists beside their types."""

from __future__ import annotations

import operator
import re
from typing import Any

from captioner.errors import clip

FOLLOWED = frozenset(
    """$ref additionalProperties allOf anyOf const enum exclusiveMaximum exclusiveMinimum format items
    maxItems maxLength maximum minItems minLength minimum oneOf pattern properties required type
    uniqueItems""".split()  # noqa: SIM905
)
"""The keywords of a schema that are checked."""
NOT_FOLLOWED = frozenset(
    """$dynamicRef $recursiveRef additionalItems contains contentEncoding dependencies dependentRequired
    dependentSchemas else if maxContains maxProperties minContains minProperties multipleOf not
    patternProperties prefixItems propertyNames then unevaluatedItems unevaluatedProperties""".split()  # noqa: SIM905
)
"""The keywords that are not supported. All others are annotations."""
_FORMATS = frozenset(
    """base64 binary byte date date-time duration email hostname idn-email idn-hostname ipv4 ipv6 iri
    iri-reference json-pointer regex relative-json-pointer time uri uri-reference uri-template url
    uuid""".split()  # noqa: SIM905
)
"""Formats that no caption and no keyword has."""
_SIMPLE = re.compile(r"(?:\\[-wWsSdD.]|\[\^?(?:[^\\\[\]]|\\[-wWsSdD.])+\]|[^\\()|\[\]])*")
"""A regular expression without groups."""
_DOUBTFUL = re.compile(r"([-&~|])\1")
"""What may change its meaning in later versions of Python."""
_REPEATS = re.compile(r"[*+?{]")
_MOST_REPEATS = 2
"""The most repeats in a pattern: each multiplies the time."""
_COMPARED = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


def text_fault(text: str, schema: dict[str, Any]) -> str:
    """Why the schema may not allow a text; "" if it does."""
    if (format := str(schema.get("format"))) in _FORMATS:
        return f"has the format {format}, which no caption and no keyword has"
    if "pattern" in schema and not _matches(schema["pattern"], text):
        return f"has the pattern {clip(schema['pattern'], 50)}, which is not met or too complex"
    return size_fault(len(text), schema, "Length")


def size_fault(size: int, schema: dict[str, Any], what: str) -> str:
    """Why the schema does not allow a size; `what` is "Length" or "Items"."""
    least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}", size)
    if isinstance(least, int) and isinstance(most, int) and least <= size <= most:
        return ""
    return f"has min{what} or max{what}, which what is known does not meet ({size})"


def number_fault(value: float, schema: dict[str, Any]) -> str:
    """Why the schema does not allow a number."""
    for name, holds in _COMPARED.items():
        limit = schema.get(name)
        if isinstance(limit, bool):  # as in old schemas: whether the other limit is part of what it limits
            limit = schema.get(name.removeprefix("exclusive").lower()) if limit else None
        if limit is not None and not (isinstance(limit, int | float) and holds(value, limit)):
            return f"has {name} {clip(limit, 50)}, and it is {value}"
    return ""


def _matches(pattern: Any, text: str) -> bool:
    """Whether a text has a pattern; False also for one that could take long to compare."""
    if not isinstance(pattern, str) or len(pattern) > 200 or not _SIMPLE.fullmatch(pattern):
        return False
    if _DOUBTFUL.search(pattern) or len(_REPEATS.findall(pattern)) > _MOST_REPEATS:
        return False
    try:
        return re.search(pattern, text) is not None
    except (re.error, OverflowError):
        return False
