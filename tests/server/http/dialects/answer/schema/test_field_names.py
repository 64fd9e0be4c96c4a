"""Which fields of a format are filled: those whose whole name says what they are for."""

import pytest

from captioner_server.errors import RequestError
from captioner_server.http.dialects.answer.facts import Facts, Keyword
from captioner_server.http.dialects.answer.schema.fill import fill_schema

FACTS = Facts("a woman with a hot dog", 0.5, (Keyword("woman", 0.75), Keyword("hot dog", 0.25)))
ALT = "A person with a hot dog."
KEYWORDS = ["woman", "hot dog"]
TEXT, NUMBER, TEXTS = {"type": "string"}, {"type": "number"}, {"type": "array", "items": {"type": "string"}}


def record(**fields: object) -> dict:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def fill(name: str, field: object) -> object:
    """The value of a field that need not be filled; None where it is left out."""
    schema = {"type": "object", "properties": {"caption": TEXT, name: field}, "required": ["caption"]}
    filled = fill_schema(schema, FACTS)
    if name not in filled:
        with pytest.raises(RequestError, match="nothing is known for"):
            fill_schema(record(**{name: field}), FACTS)
    return filled.get(name)


@pytest.mark.parametrize(
    "name",
    """caption title text content answer description summary headline imageCaption image_description
    short_caption long_caption detailed_description english_caption one_sentence_summary caption_text
    generated_title main_title content_description final_answer output_text desc image_desc""".split(),  # noqa: SIM905
)
def test_fields_of_captions_have_the_caption(name) -> None:
    assert fill(name, TEXT) == FACTS.caption


@pytest.mark.parametrize(
    "name",
    [
        "alt",
        "altText",
        "ALT",
        "alt_text",
        "alttext",
        "Image Alt Text",
        "alternative_text",
        "accessibility label",
    ],
)
def test_alt_texts(name) -> None:
    assert fill(name, TEXT) == ALT


@pytest.mark.parametrize(
    "name",
    [
        *[
            "error_message",
            "license_plate_text",
            "ocr_text",
            "extracted_text",
            "text_content",
            "image_text",
            "text_in_image",
            "location_description",
            "background_description",
            "person_description",
            "brand_labels",
            "negative_keywords",
            "not_caption",
            "alternative_title",
            "reasoning",
            "mood",
            "name",
            "file_name",
            "caption_de",
            "beschreibung",
            "übertitle",
            "description_für_alle",
            "text.extracted",
            "people.caption",
            "标题caption",
        ],
        f"caption {100 * ' '} of the error",
    ],
)
@pytest.mark.parametrize("field", [TEXT, TEXTS], ids=["text", "texts"])
def test_what_a_name_asks_for_as_a_whole_is_not_known(name, field) -> None:
    assert fill(name, field) is None


@pytest.mark.parametrize(
    "name",
    ["keywords", "tags", "labels", "image_tags", "main_objects", "suggested_keywords", "tagList", "elements"],
)
def test_fields_of_keywords_have_the_keywords(name) -> None:
    assert fill(name, TEXTS) == KEYWORDS
    assert fill(name, TEXT) == "woman, hot dog"


@pytest.mark.parametrize("name", ["titles", "captions", "image_descriptions", "summaries"])
def test_lists_of_captions(name) -> None:
    assert fill(name, TEXTS) == [FACTS.caption]


def test_fields_of_hashtags_have_the_keywords_in_one_word_each() -> None:
    assert fill("hashtags", TEXTS) == ["#woman", "#hotdog"]
    assert fill("hashtags", TEXT) == "#woman #hotdog"


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *((one, True) for one in ("confidence", "probability", "caption_confidence", "confidenceScore")),
        *(
            (one, False)
            for one in ("nsfw_confidence", "person_detected_confidence", "score", "quality_score")
        ),
        *((one, False) for one in ("aesthetic_score", "threat_score", "text_confidence", "relevance")),
    ],
)
def test_confidences(name, known) -> None:
    assert fill(name, NUMBER) == (0.5 if known else None)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        *((one, True) for one in ("confidence", "topicality", "score", "relevance", "label_score")),
        *((one, False) for one in ("nsfw_confidence", "text_confidence", "count", "adult score")),
    ],
)
def test_confidences_of_keywords(name, known) -> None:
    entry = {**record(name=TEXT, **{name: NUMBER}), "required": ["name"]}
    labels = fill("labels", {"type": "array", "items": entry})
    assert [label.get(name) for label in labels] == ([0.75, 0.25] if known else [None, None])


def test_a_confidence_alone_says_nothing() -> None:
    schema = {"properties": {"nsfw": {"type": "boolean"}, "confidence": NUMBER}}
    with pytest.raises(RequestError, match="does not say what confidence is of"):
        fill_schema(schema, FACTS)


@pytest.mark.parametrize("name", ["image", "photo_data", "result"])
def test_what_is_in_an_object_about_the_photo_is_known(name) -> None:
    assert fill(name, record(title=TEXT)) == {"title": FACTS.caption}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("location", record(description=TEXT)),
        ("license_plate", record(text=TEXT)),
        ("background", record(image=record(caption=TEXT))),
        ("people", {"type": "array", "items": record(description=TEXT)}),
        ("tags", {"type": "object", "additionalProperties": NUMBER}),
        ("objects", {"type": "array", "items": record(name=TEXT, box={"type": "array", "items": NUMBER})}),
    ],
)
def test_what_is_in_something_else_is_not(name, field) -> None:
    assert fill(name, field) is None


@pytest.mark.parametrize(
    ("items", "value"),
    [
        (TEXT, KEYWORDS),
        (
            record(tag=TEXT, confidence=NUMBER),
            [{"tag": "woman", "confidence": 0.75}, {"tag": "hot dog", "confidence": 0.25}],
        ),
        (record(caption=TEXT, tags=TEXTS), [{"caption": FACTS.caption, "tags": KEYWORDS}]),
    ],
)
def test_an_answer_that_is_a_list(items, value) -> None:
    """As it is, and in an object, as the AI SDK asks for it."""
    listed = {"type": "array", "items": items}
    assert fill_schema(listed, FACTS) == value
    assert fill_schema({"$schema": "x", **record(elements=listed)}, FACTS) == {"elements": value}
