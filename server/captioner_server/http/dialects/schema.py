"""Fills a JSON schema with what is known of a photo, going by the names of its fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from captioner.errors import clip
from captioner_server.errors import RequestError
from captioner_server.http.dialects.facts import Facts, Keyword


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SENTENCE = _names(
    """alt answer caption captions content description descriptions headline message output response result
    sentence summary text title"""
)
_ALT = _names("alt alternative")
"""Words in the name of a field for alt text."""
_LIST = _names(
    "categories items keyword keywords label labels nouns objects subjects tag tags things topics words"
)
_ONE = _names("category item keyword label name noun object subject tag text thing title topic value word")
_CHANCE = _names("certainty confidence probability relevance score topicality")
_REMARKS = _names(
    """$defs $id $schema default definitions deprecated description examples nullable propertyOrdering
    readOnly strict title"""
)
"""What a schema says without asking for anything."""
_KNOWN = _REMARKS | _names(
    """$ref additionalProperties allOf anyOf const enum items maxItems maxLength maximum minItems minLength
    minimum oneOf properties required type uniqueItems"""
)
_MOST_DEPTH = 16
_MOST_STEPS = 50_000
"""What is looked at for one answer: references make a short schema unfold without end."""
_SCHEMA_STEPS = 10
"""Those of a schema; a choice, a name and a letter of a reference is one."""
_LONGEST_NAME = 100
"""Characters of a field's name that count."""
_NOTHING = object()


class Unmet(Exception):
    """A field that cannot be filled; the text says which and why."""


def fill_schema(schema: Any, facts: Facts) -> Any:
    """A value that the schema allows. Raises `RequestError` for a schema that asks for more than is known."""
    try:
        return _Filler(schema, facts).value(schema, "", None, 0)
    except Unmet as error:
        raise RequestError(
            f"the format cannot be met: {error}; it can have a caption, keywords and their confidence",
            "format",
        ) from None
    except RecursionError:
        raise RequestError("the format has too many brackets within each other", "format") from None


def schema_of(example: Any) -> Any:
    """The schema that an example of an answer stands for, none of whose fields is required."""
    if isinstance(example, dict):
        if isinstance(example.get("properties"), dict):
            return example  # a schema already
        return {"type": "object", "properties": {name: schema_of(value) for name, value in example.items()}}
    if isinstance(example, list):
        return {"type": "array", "items": schema_of(example[0]) if example else {"type": "string"}}
    kinds = {bool: "boolean", int: "number", float: "number", str: "string"}
    return {"type": kinds.get(type(example), "null")}


class _Filler:
    def __init__(self, root: Any, facts: Facts) -> None:
        self._root, self._facts = root, facts
        self._steps = 0

    def value(self, schema: Any, path: str, keyword: Keyword | None, depth: int) -> Any:
        """The value of the field at `path`, within the entry of a list for `keyword`."""
        self._spend(_SCHEMA_STEPS)
        if schema is True:
            schema = {}
        if not isinstance(schema, dict) or depth > _MOST_DEPTH:
            raise Unmet(f"{path or 'it'} is no schema that can be followed")
        if unknown := set(schema) - _KNOWN:
            raise Unmet(f"{path or 'it'} has {clip(min(unknown), 50)}, which is not supported")
        for combined in ("$ref", "const", "enum", "anyOf", "oneOf", "allOf"):
            if combined in schema:
                return self._combined(schema, combined, path, keyword, depth)
        kinds = schema.get("type", _kind_of(schema, path))
        if isinstance(kinds, list):
            options = [{**schema, "type": kind} for kind in sorted(kinds, key=lambda kind: kind == "null")]
            return self._first(options, path, keyword, depth)
        match str(kinds).lower():
            case "object":
                return self._object(schema, path, keyword, depth)
            case "array":
                return self._array(schema, path, keyword, depth)
            case "string":
                return _within(self._text(path, keyword), schema, path, "Length", len)
            case "number" | "integer":
                return self._chance(schema, path, keyword)
            case "null":
                return None
        raise Unmet(f"nothing is known for {path or 'it'} ({clip(str(kinds), 50)})")

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise Unmet("it is too large")

    def _combined(
        self, schema: dict[str, Any], combined: str, path: str, keyword: Keyword | None, depth: int
    ) -> Any:
        """The value of a schema that stands for others, or names values."""
        given = schema[combined]
        beside = set(schema) - _REMARKS - {combined}
        if beside - ({"type"} if combined in ("const", "enum") else set()):
            raise Unmet(f"{path or 'it'} has {clip(min(beside), 50)} beside {combined}")
        if combined == "$ref":
            return self.value(self._target(given), path, keyword, depth + 1)
        if combined == "const":
            return given
        if combined == "enum":
            return self._choice(given, path, keyword)
        if combined == "allOf" and isinstance(given, list) and len(given) > 1:
            raise Unmet(f"{path or 'it'} has allOf, which is not supported")
        return self._first(given, path, keyword, depth)

    def _target(self, reference: Any) -> Any:
        self._spend(len(str(reference)))
        found = self._root
        for part in str(reference).removeprefix("#").strip("/").split("/"):
            found = found.get(part, _NOTHING) if part and isinstance(found, dict) else found
        if found is _NOTHING:
            raise Unmet(f"{clip(str(reference), 50)} is not in it")
        return found

    def _first(self, options: Any, path: str, keyword: Keyword | None, depth: int) -> Any:
        """The value of the first of some schemas that can be filled."""
        reason = Unmet(f"{path or 'it'} has no option that can be met")
        for option in options if isinstance(options, list) else []:
            try:
                return self.value(option, path, keyword, depth + 1)
            except Unmet as error:
                reason = error
        raise reason

    def _choice(self, choices: Any, path: str, keyword: Keyword | None) -> Any:
        words = [keyword] if keyword else self._facts.keywords
        choices = choices if isinstance(choices, list) else []
        self._spend(len(choices) * max(1, len(words)))
        for choice in choices:
            if isinstance(choice, str) and any(word.text == choice.lower() for word in words):
                return choice
        raise Unmet(f"no keyword of this photo is a choice for {path or 'it'}")

    def _object(self, schema: Any, path: str, keyword: Keyword | None, depth: int) -> dict[str, Any]:
        fields, needed = schema.get("properties", {}), schema.get("required", [])
        lists_names = isinstance(needed, list) and all(isinstance(name, str) for name in needed)
        if not isinstance(fields, dict) or not lists_names:
            raise Unmet(f"{path or 'it'} is no schema that can be followed")
        self._spend(len(fields) + len(needed))
        record = {}
        for name in [*fields, *(name for name in needed if name not in fields)]:
            shown = name[:_LONGEST_NAME]
            place = f"{path}.{shown}" if path else shown
            field = fields.get(name, schema.get("additionalProperties", {}))
            try:
                record[name] = self.value(field, place, keyword, depth + 1)
            except Unmet:
                if name in needed:
                    raise
        if fields and not record:
            raise Unmet(f"nothing is known for {', '.join(clip(str(name), 50) for name in list(fields)[:3])}")
        return record

    def _array(self, schema: Any, path: str, keyword: Keyword | None, depth: int) -> list[Any]:
        items = schema.get("items", {"type": "string"})
        words = _words(path)
        if keyword and not path.endswith("[]"):
            return _within([], schema, path, "Items", len)  # synonyms, for example: none is known
        if keyword or (path and not words & (_LIST | _SENTENCE)):
            raise Unmet(f"nothing is known for {path} (array)")
        if path and not words & _LIST:
            found = [self.value(items, path, None, depth + 1)]
        else:
            found = list(self._entries(items, path, depth))
        most = schema.get("maxItems")
        found = found[:most] if isinstance(most, int) and most >= 0 else found
        if schema.get("uniqueItems") and any(one in found[:place] for place, one in enumerate(found)):
            raise Unmet(f"{path or 'it'} would have an item twice")
        return _within(found, schema, path, "Items", len)

    def _entries(self, items: Any, path: str, depth: int) -> Iterator[Any]:
        """An entry for each keyword that the schema of entries allows."""
        reason = None
        entries = 0
        for word in self._facts.keywords:
            try:
                yield self.value(items, f"{path}[]", word, depth + 1)
                entries += 1
            except Unmet as error:
                reason = error
        if reason and not entries:
            raise reason

    def _text(self, path: str, keyword: Keyword | None) -> str:
        words = _words(path)
        if keyword:
            if path.endswith("[]") or words & _ONE:
                return keyword.text
        elif not path or words & _SENTENCE:
            return self._facts.alt_text if words & _ALT else self._facts.caption
        elif words & _LIST:
            return ", ".join(word.text for word in self._facts.keywords)
        raise Unmet(f"nothing is known for {path} (string)")

    def _chance(self, schema: Any, path: str, keyword: Keyword | None) -> float:
        chance = keyword.probability if keyword else self._facts.confidence
        if chance is None or not _words(path) & _CHANCE:
            raise Unmet(f"nothing is known for {path or 'it'} (number)")
        whole = schema.get("type") == "integer"
        most = schema.get("maximum", 100 if whole else 1)
        scale = most if isinstance(most, (int, float)) and 1 < most <= 1000 else 1
        value = round(chance * scale) if whole else round(chance * scale, 4)
        least = schema.get("minimum", value)
        if not (
            isinstance(least, (int, float)) and isinstance(most, (int, float)) and least <= value <= most
        ):
            raise Unmet(f"{path} is from {least} to {most}, and it is {value}")
        return value


def _kind_of(schema: dict[str, Any], path: str) -> str:
    """The type of a schema that does not say it."""
    if "properties" in schema:
        return "object"
    return "array" if "items" in schema or (_words(path) & _LIST and not path.endswith("[]")) else "string"


def _words(path: str) -> set[str]:
    """The words in the name of a field: imageCaption and "Image caption" have two."""
    name = path.rpartition(".")[2].removesuffix("[]")
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def _within(value: Any, schema: Any, path: str, what: str, size_of: Any) -> Any:
    """The value, if its size is within the limits. Raises `Unmet`."""
    size = size_of(value)
    least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}", size)
    if not (isinstance(least, int) and isinstance(most, int)) or not least <= size <= most:
        raise Unmet(f"min{what} and max{what} of {path or 'it'} do not fit what is known ({size})")
    return value
