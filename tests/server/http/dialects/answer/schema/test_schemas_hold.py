"""Whatever schema can be filled, the value is one that the schema allows."""

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from captioner_server.errors import RequestError
from captioner_server.http.dialects.answer.facts import Facts, Keyword
from captioner_server.http.dialects.answer.schema.fill import fill_schema

FACTS = Facts("a dog on a beach", 0.5, (Keyword("dog", 0.75), Keyword("beach", 0.25)))
NAMES = st.sampled_from(
    [
        "caption",
        "title",
        "keywords",
        "labels",
        "name",
        "score",
        "mood",
        "confidence",
        "altText",
        "hashtags",
        "elements",
    ]
)
SIZES = st.none() | st.integers(0, 20)


def limited(kind: str, low: str, high: str) -> st.SearchStrategy:
    def make(least: int | None, most: int | None) -> dict:
        given = {low: least, high: most}
        return {"type": kind, **{name: value for name, value in given.items() if value is not None}}

    return st.builds(make, SIZES, SIZES)


LEAVES = st.one_of(
    limited("string", "minLength", "maxLength"),
    limited("number", "minimum", "maximum"),
    limited("integer", "minimum", "maximum"),
    limited("number", "exclusiveMinimum", "exclusiveMaximum"),
    st.sampled_from(["^[A-Z]", "^[a-z ]+$", "dog", "^.{1,9}$", "(a|b)"]).map(
        lambda pattern: {"type": "string", "pattern": pattern, "x-note": pattern}
    ),
    st.sampled_from([True, {}, {"type": "boolean"}, {"type": "null"}, {"type": ["null", "string"]}]),
    st.builds(
        lambda values: {"enum": values}, st.lists(st.sampled_from(["dog", "Cat", 3, None]), min_size=1)
    ),
)


def grown(inner: st.SearchStrategy) -> st.SearchStrategy:
    def record(fields: dict, needed: list, closed: bool) -> dict:
        return {
            "type": "object",
            "properties": fields,
            "required": needed,
            "additionalProperties": not closed,
        }

    def listed(sizes: dict, items: object, unique: bool) -> dict:
        return {**sizes, "items": items, "uniqueItems": unique}

    return st.one_of(
        st.builds(
            record,
            st.dictionaries(NAMES, inner, max_size=4),
            st.lists(NAMES, max_size=2, unique=True),
            st.booleans(),
        ),
        st.builds(listed, limited("array", "minItems", "maxItems"), inner, st.booleans()),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda options: {"allOf": options}, st.lists(inner, min_size=1, max_size=2)),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(LEAVES, grown, max_leaves=8))
def test_the_value_is_valid(schema: object) -> None:
    try:
        value = fill_schema(schema, FACTS)
    except RequestError:
        return
    jsonschema.validate(value, schema)


WORDS = st.sampled_from(
    """type properties required items enum const anyOf oneOf allOf $ref $defs minimum maximum minItems
    maxItems minLength maxLength uniqueItems additionalProperties title caption keywords""".split()  # noqa: SIM905
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | WORDS
    | st.sampled_from(["#", "object", "array", "string"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(ANYTHING)
@example({"type": "object", "required": [["caption"]]})
@example({"type": "object", "required": [1], "properties": {"caption": {"type": {}}}})
def test_anything_else_is_refused_in_one_line(schema: object) -> None:
    try:
        fill_schema(schema, FACTS)
    except RequestError as error:
        assert "\n" not in str(error) and len(str(error)) < 500


def test_the_means_of_the_check_see_what_is_wrong() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate("a dog", {"type": "string", "maxLength": 3})
