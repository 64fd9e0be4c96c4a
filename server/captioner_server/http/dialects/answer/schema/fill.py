"""Fills a JSON schema with what is known of a photo, going by the names of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from captioner.errors import clip
from captioner.words.alt_text import alt_text
from captioner.words.english import FUNCTION_WORDS
from captioner_server.errors import RequestError
from captioner_server.http.dialects.answer.facts import Facts
from captioner_server.http.dialects.answer.schema.constraints import (
    FOLLOWED,
    NOT_FOLLOWED,
    number_fault,
    size_fault,
    text_fault,
)
from captioner_server.http.dialects.answer.schema.descriptions import asks_for_unknown
from captioner_server.http.dialects.answer.schema.field_names import (
    is_alt_text,
    is_caption,
    is_confidence,
    is_hashtags,
    is_keyword,
    is_keywords,
    is_synonyms,
    words_of,
)
from captioner_server.http.dialects.answer.schema.place import Place, Unmet

T = TypeVar("T")

_MOST_DEPTH = 16
_MOST_STEPS = 50_000
"""What is looked at for one answer: references make a short schema unfold without end."""
_SCHEMA_STEPS = 10
"""Those of a schema; a choice, a name and a letter of a reference is one."""
_NOTHING = object()


def fill_schema(schema: Any, facts: Facts, field: str = "format") -> Any:
    """A value that the schema allows. Raises `RequestError`, about the `field` of the request that holds the
    schema, if it asks for more than is known."""
    try:
        return _Filler(schema, facts).value(schema, Place())
    except Unmet as error:
        what = "the arguments of the function" if field == "tools" else "the format"
        more = "; response_format asks without a function" if field == "tools" else ""
        raise RequestError(
            f"{what} cannot be met: {error}; it can have a caption, keywords and their confidence{more}",
            field,
        ) from None
    except RecursionError:
        raise RequestError("the format has too many brackets within each other", field) from None


class _Filler:
    def __init__(self, root: Any, facts: Facts) -> None:
        self._root, self._facts = root, facts
        self._steps = 0

    def value(self, schema: Any, place: Place) -> Any:
        self._spend(_SCHEMA_STEPS)
        if schema is True:
            schema = {}
        if not isinstance(schema, dict) or place.depth > _MOST_DEPTH:
            raise Unmet(f"{place.shown} is no schema that can be followed")
        if unknown := NOT_FOLLOWED & set(schema):
            raise Unmet(f"{place.shown} has {min(unknown)}, which is not supported")
        if is_caption(place.words) and asks_for_unknown(schema.get("description")):
            place = place._replace(words=("?",))
        for combined in ("$ref", "const", "enum", "anyOf", "oneOf", "allOf"):
            if combined in schema:
                return self._combined(schema, combined, place)
        kinds = schema.get("type", _kind_of(schema, place))
        if isinstance(kinds, list):
            options = [{**schema, "type": kind} for kind in sorted(kinds, key=lambda kind: kind == "null")]
            return self._first(options, place)
        match str(kinds).lower():
            case "object":
                return self._object(schema, place)
            case "array":
                return self._array(schema, place)
            case "string":
                return self._text(schema, place)
            case "number" | "integer":
                return self._confidence(schema, place)
            case "null":
                return None
        raise _unknown(place, str(kinds))

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise Unmet("it is too large")

    def _combined(self, schema: dict[str, Any], combined: str, place: Place) -> Any:
        """The value of a schema that stands for others, or names values."""
        given = schema[combined]
        beside = set(schema) & FOLLOWED - {combined}
        if beside - ({"type"} if combined in ("const", "enum") else set()):
            raise Unmet(f"{place.shown} has {min(beside)} beside {combined}")
        if combined == "$ref":
            return self.value(self._target(given), place.deeper())
        if combined == "const":
            return given
        if combined == "enum":
            return self._choice(given, place)
        if combined == "allOf" and isinstance(given, list) and len(given) > 1:
            raise Unmet(f"{place.shown} has allOf, which is not supported")
        return self._first(given, place)

    def _target(self, reference: Any) -> Any:
        self._spend(len(str(reference)))
        found = self._root
        for part in str(reference).removeprefix("#").strip("/").split("/"):
            found = found.get(part, _NOTHING) if part and isinstance(found, dict) else found
        if found is _NOTHING:
            raise Unmet(f"{clip(str(reference), 50)} is not in it")
        return found

    def _first(self, options: Any, place: Place) -> Any:
        """The value of the first of some schemas that can be filled."""
        reason = Unmet(f"{place.shown} has no option that can be met")
        for option in options if isinstance(options, list) else []:
            try:
                return self.value(option, place.deeper())
            except Unmet as error:
                reason = error
        raise reason

    def _choice(self, choices: Any, place: Place) -> Any:
        words = [place.keyword] if place.keyword else self._facts.keywords
        choices = choices if isinstance(choices, list) else []
        self._spend(len(choices) * max(1, len(words)))
        for choice in choices:
            if isinstance(choice, str) and any(word.text == choice.lower() for word in words):
                return choice
        raise Unmet(f"no keyword of this photo is a choice for {place.shown}")

    def _object(self, schema: Any, place: Place) -> dict[str, Any]:
        fields, needed = schema.get("properties", {}), schema.get("required", [])
        lists_names = isinstance(needed, list) and all(isinstance(name, str) for name in needed)
        if not isinstance(fields, dict) or not lists_names:
            raise Unmet(f"{place.shown} is no schema that can be followed")
        if place.path and not fields and not needed:
            raise _unknown(place, "object")
        self._spend(len(fields) + len(needed))
        record = {}
        for name in [*fields, *(name for name in needed if name not in fields)]:
            field = fields.get(name, schema.get("additionalProperties", {}))
            try:
                record[name] = self.value(field, place.field(name))
            except Unmet:
                if name in needed:
                    raise
        if fields and not record:
            raise Unmet(f"nothing is known for {_listed(fields)}")
        if record and all(is_confidence(words_of(name), entry=place.keyword is not None) for name in record):
            raise Unmet(f"it does not say what {_listed(record)} is of")
        return record

    def _array(self, schema: Any, place: Place) -> list[Any]:
        items = schema.get("items", {"type": "string"})
        found: list[Any]
        if place.keyword:
            if place.is_entry or not is_synonyms(place.words):
                raise _unknown(place, "array")
            found = []  # none is known
        elif not place.words or place.words == (
            "elements",
        ):  # the answer, also where it has to be in an object
            try:
                found = self._entries(items, place, schema)
            except Unmet:
                found = [self.value(items, place.entry(None)._replace(words=()))]
        elif is_keywords(place.words):
            found = self._entries(items, place, schema)
        elif is_caption(place.words):
            found = [self.value(items, place.entry(None))]
        else:
            raise _unknown(place, "array")
        most = schema.get("maxItems")
        found = found[:most] if isinstance(most, int) and most >= 0 else found
        if schema.get("uniqueItems") and any(one in found[:before] for before, one in enumerate(found)):
            raise Unmet(f"{place.shown} would have an item twice")
        return _checked(found, place, size_fault(len(found), schema, "Items"))

    def _entries(self, items: Any, place: Place, schema: dict[str, Any]) -> list[Any]:
        """An entry for each keyword that the schema of entries allows, and for more general words as far as
        the list must be longer."""
        least = schema.get("minItems", 0)
        found: list[Any] = []
        reason = None
        for words, most in ((self._facts.keywords, None), (self._facts.general, least)):
            for word in words:
                if most is not None and not (isinstance(most, int) and len(found) < most):
                    break
                try:
                    found.append(self.value(items, place.entry(word)))
                except Unmet as error:
                    reason = error
        if reason and not found:
            raise reason
        return found

    def _text(self, schema: dict[str, Any], place: Place) -> str:
        most = schema.get("maxLength")
        most = most if isinstance(most, int) and most >= 0 else None
        if keyword := place.keyword:
            if not (place.is_entry or is_keyword(place.words)):
                raise _unknown(place, "string")
            text = keyword.hashtag if is_hashtags(place.words) else keyword.text
        elif not place.words or is_caption(place.words):
            form = alt_text if is_alt_text(place.words) else str
            text = _shortened(self._facts.caption.split(" "), " ", most, form, FUNCTION_WORDS)
        elif is_keywords(place.words):
            tags = is_hashtags(place.words)
            words = [word.hashtag if tags else word.text for word in self._facts.keywords]
            text = _shortened(words, " " if tags else ", ", most)
        else:
            raise _unknown(place, "string")
        return _checked(text, place, text_fault(text, schema))

    def _confidence(self, schema: Any, place: Place) -> float:
        keyword = place.keyword
        chance = keyword.probability if keyword else self._facts.confidence
        if chance is None or not is_confidence(place.words, entry=keyword is not None):
            raise _unknown(place, "number")
        whole = schema.get("type") == "integer"
        most = schema.get("maximum", 100 if whole else 1)
        scale = most if isinstance(most, (int, float)) and 1 < most <= 1000 else 1
        value = round(chance * scale) if whole else round(chance * scale, 4)
        return _checked(value, place, number_fault(value, schema))


def _kind_of(schema: dict[str, Any], place: Place) -> str:
    """The type of a schema that does not say it."""
    if "properties" in schema:
        return "object"
    if "items" in schema or (is_keywords(place.words) and not place.keyword):
        return "array"
    return "number" if is_confidence(place.words, entry=place.keyword is not None) else "string"


def _shortened(
    words: Sequence[str],
    between: str,
    most: int | None,
    form: Callable[[str], str] = str,
    unfinished: frozenset[str] = frozenset(),
) -> str:
    """The text of words in a form, with so few of them that it has at most `most` characters, if that leaves
    any. Those that would leave it `unfinished` are not the last."""
    whole = text = form(between.join(words))
    while words and most is not None and len(text) > most:
        words = words[:-1]
        while words and words[-1].lower() in unfinished:
            words = words[:-1]
        text = form(between.join(words))
    return text if words else whole


def _unknown(place: Place, kind: str) -> Unmet:
    return Unmet(f"nothing is known for {place.shown} ({clip(kind, 50)})")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(clip(name, 50) for name in list(names)[:3])


def _checked(value: T, place: Place, fault: str) -> T:
    """The value, if there is no fault in it. Raises `Unmet`."""
    if fault:
        raise Unmet(f"{place.shown} {fault}")
    return value
