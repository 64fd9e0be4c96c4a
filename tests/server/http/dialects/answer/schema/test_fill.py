"""Which schemas are filled, and with what."""

import json

import pytest

from captioner.results import Caption, Word
from captioner_server.errors import RequestError
from captioner_server.http.dialects.answer.facts import Facts
from captioner_server.http.dialects.answer.reply import text_of
from captioner_server.http.dialects.answer.schema.fill import fill_schema

WORDS = (("a", -0.01), ("black", -0.2), ("dog", -0.1), ("on", -0.1), ("a", -0.1), ("beach", -0.5))
CAPTION = Caption("a black dog on a beach", -1.0, tuple(Word(*one) for one in WORDS), confidence=0.625)
FACTS = Facts.of(CAPTION)
KEYWORDS = [keyword.text for keyword in FACTS.keywords]
TEXT, CHANCE = {"type": "string"}, {"type": "number", "minimum": 0, "maximum": 1}


def record(**fields: object) -> dict:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def listed(items: object, **limits: object) -> dict:
    return {"type": "array", "items": items, **limits}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (TEXT, CAPTION.text),
        (True, CAPTION.text),
        (record(description=TEXT, confidence=CHANCE), {"description": CAPTION.text, "confidence": 0.625}),
        (record(title=TEXT, confidence={"type": "integer"}), {"title": CAPTION.text, "confidence": 62}),
        (
            record(title=TEXT, confidence={"type": "number", "maximum": 10}),
            {"title": CAPTION.text, "confidence": 6.25},
        ),
        (record(keywords=listed(TEXT)), {"keywords": KEYWORDS}),
        (record(keywords=TEXT), {"keywords": ", ".join(KEYWORDS)}),
        (record(tags=listed(TEXT, maxItems=1)), {"tags": KEYWORDS[:1]}),
        (listed(TEXT), KEYWORDS),
        (listed(record(name=TEXT)), [{"name": word} for word in KEYWORDS]),
        (
            record(keywords=listed(record(name=TEXT, synonyms=listed(TEXT)))),
            {"keywords": [{"name": word, "synonyms": []} for word in KEYWORDS]},
        ),
        (record(captions=listed(TEXT)), {"captions": [CAPTION.text]}),
        ({"$ref": "#/$defs/Photo", "$defs": {"Photo": record(title=TEXT)}}, {"title": CAPTION.text}),
        (record(title={"anyOf": [{"type": "null"}, TEXT]}), {"title": None}),
        (record(title={"type": ["null", "string"]}), {"title": CAPTION.text}),
        (record(kind={"const": "photo"}), {"kind": "photo"}),
        (record(category={"enum": ["Cat", "Dog"]}), {"category": "Dog"}),
        ({"properties": {"title": TEXT, "mood": TEXT}, "required": ["title"]}, {"title": CAPTION.text}),
        (record(imageCaption=TEXT), {"imageCaption": CAPTION.text}),
    ],
)
def test_schemas_are_filled(schema, value) -> None:
    assert fill_schema(schema, FACTS) == value


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (record(mood=TEXT), "mood"),
        (record(title=TEXT, nsfw={"type": "boolean"}), "nsfw"),
        (record(colors=listed(TEXT)), "colors"),
        (record(keywords=record(People=listed(TEXT))), "keywords.People"),
        (record(title={"type": "string", "pattern": "^(a+)+$"}), "pattern"),
        (record(title={"type": "string", "maxLength": 5}), "title has minLength or maxLength"),
        (record(tags=listed(TEXT, minItems=20)), "minItems"),
        (record(category={"enum": ["cat"]}), "category"),
        ({"$ref": "#/$defs/Missing"}, "Missing"),
        ({"$ref": "#"}, "followed"),
        ({"type": "object", "properties": [], "required": []}, "followed"),
        ({"type": "object", "required": ["mood"]}, "mood"),
        (False, "followed"),
        ({"anyOf": [{"$ref": "#"}] * 1000}, "too large"),
    ],
)
def test_schemas_that_ask_for_more_are_refused(schema, reason) -> None:
    with pytest.raises(RequestError, match="the format cannot be met") as caught:
        fill_schema(schema, FACTS)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "description",
    [
        "number of people in the photo",
        "How many dogs are there?",
        "yes or no",
        "true/false",
        "Whether it is night",
        "Is there a dog?",
        "All text visible in the image, verbatim",
        "text in the photo",
        "the OCR result",
        "The licence plate",
        "Transcribe the receipt.",
    ],
)
@pytest.mark.parametrize("name", ["answer", "text", "description"])
def test_a_description_of_a_field_may_ask_for_what_is_not_known(name, description) -> None:
    asked = {**TEXT, "description": description}
    with pytest.raises(RequestError, match=f"nothing is known for {name}"):
        fill_schema(record(**{name: asked}), FACTS)
    optional = {"anyOf": [TEXT, {"type": "null"}], "description": description}
    assert fill_schema(record(title=TEXT, **{name: optional}), FACTS) == {"title": CAPTION.text, name: None}
    shown = json.dumps({"caption": "...", name: description, "tags": []})
    told = json.loads(text_of(CAPTION, f"JSON: {shown}", None))
    assert told == {"caption": CAPTION.text, "tags": KEYWORDS}


@pytest.mark.parametrize(
    "description",
    [
        "The answer",
        "A text in plain English",
        "What the image shows",
        "a caption with the number of people",
        "Describe the photo and the text in it",
        "one sentence, at most 20 words",
        "Plain, whatever the number of words",
        "Text of the caption; yes, in English",
    ],
)
def test_other_descriptions_of_a_field_are_ignored(description) -> None:
    asked = record(answer={**TEXT, "description": description})
    assert fill_schema(asked, FACTS) == {"answer": CAPTION.text}


@pytest.mark.parametrize(
    "example",
    [
        "A stop sign, and text on the sign",
        "A red car with a licence plate",
        "A number of people on a street",
        "Two dogs, however many people look at the number of them",
        "A man reads a document; it is hard to say how many pages",
    ],
)
def test_a_caption_that_is_an_example_is_no_description(example) -> None:
    shown = json.dumps({"caption": example, "tags": ["dog"]})
    told = json.loads(text_of(CAPTION, f"Answer in JSON like {shown}", None))
    assert told == {"caption": CAPTION.text, "tags": KEYWORDS}


def test_confidences_of_labels_are_those_of_their_words() -> None:
    [dog] = [
        one for one in fill_schema(listed(record(label=TEXT, score=CHANCE)), FACTS) if one["label"] == "dog"
    ]
    assert dog["score"] == 0.9048


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"type": "string", "maxLength": 16}, "a black dog"),
        ({"type": "string", "maxLength": 22}, "a black dog on a beach"),
        ({"type": "string", "minLength": 12, "maxLength": 16}, None),
        ({"type": "string", "pattern": "^[A-Z]"}, None),
        ({"type": "string", "pattern": r"^\S.*$"}, "a black dog on a beach"),
        ({"type": "string", "pattern": r"^[\w .-]{1,125}$"}, "a black dog on a beach"),
        ({"type": "string", "pattern": "["}, None),
        ({"type": "string", "pattern": "^" + ".*" * 50 + "x$"}, None),
        ({"type": "string", "pattern": "[a||b]"}, None),
        ({"type": "string", "pattern": ".{99999999999}"}, None),
        ({"type": "string", "pattern": 3}, None),
        ({"type": "string", "format": "markdown"}, "a black dog on a beach"),
        ({"type": "string", "format": "date-time"}, None),
        ({"type": "string", "$comment": "short", "x-order": 1, "example": "a cat"}, "a black dog on a beach"),
    ],
)
def test_captions_within_limits(field, value) -> None:
    """None where the limits cannot be kept: the field is left out, or the error names it."""
    schema = {**record(keywords=listed(TEXT), title=field), "required": ["keywords"]}
    assert fill_schema(schema, FACTS).get("title") == value
    if value is None:
        with pytest.raises(RequestError, match="title has"):
            fill_schema(record(title=field), FACTS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.625),
        ({"exclusiveMinimum": 0.625}, None),
        ({"exclusiveMaximum": 0.625}, None),
        ({"minimum": 0.625, "exclusiveMinimum": True}, None),
        ({"minimum": 0.625, "exclusiveMinimum": False}, 0.625),
        ({"maximum": 0.625, "exclusiveMaximum": True}, None),
        ({"minimum": 0.7}, None),
        ({"multipleOf": 0.25}, None),
    ],
)
def test_confidences_within_limits(field, value) -> None:
    schema = {**record(title=TEXT, confidence={"type": "number", **field}), "required": ["title"]}
    assert fill_schema(schema, FACTS).get("confidence") == value


def test_keywords_that_a_list_lacks_are_more_general_words() -> None:
    def tags(least: int, **more: object) -> list:
        return fill_schema(record(tags=listed(TEXT, minItems=least, **more)), FACTS)["tags"]

    assert tags(2) == KEYWORDS == ["dog", "beach"]
    assert tags(3) == ["dog", "beach", "animal"]
    assert tags(4, maxItems=10, uniqueItems=True) == ["dog", "beach", "animal", "landscape"]
    with pytest.raises(RequestError, match=r"tags has minItems .* \(4\)"):
        tags(5)


@pytest.mark.parametrize(("most", "value"), [(20, "dog, beach"), (9, "dog"), (3, "dog")])
def test_keywords_in_one_text_are_whole(most, value) -> None:
    assert fill_schema(record(keywords={"type": "string", "maxLength": most}), FACTS) == {"keywords": value}


SLASHES = {"$ref": f"#{'/' * 16_000}$defs/x"}
CHOICES = {"enum": [f"no {number}" for number in range(4000)]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"x": {"anyOf": [SLASHES, SLASHES]}}, "anyOf": [SLASHES] * 4},
        {"$defs": {"x": CHOICES}, "anyOf": [{"$ref": "#/$defs/x"}] * 400},
    ],
    ids=["references", "choices"],
)
def test_schemas_that_would_take_seconds(schema) -> None:
    with pytest.raises(RequestError, match="it is too large"):
        fill_schema(schema, FACTS)
