"""Objects in captions, and CHAIR with numbers counted by hand."""

from __future__ import annotations

import pytest

from captioner.metrics import compare_captions, evaluate_captions, tokenize
from captioner.metrics.captions import objects_by_image
from captioner.metrics.chair import find_mentions
from captioner.references import CaptionedImage
from captioner.words.coco import CATEGORIES, PHRASES


@pytest.mark.parametrize(
    ("caption", "said"),
    [
        ("Two men and three women ride horses.", ["person", "person", "horse"]),
        ("a hot dog on a table", ["hot dog", "dining table"]),
        ("hot dogs, and a dog", ["hot dog", "dog"]),
        ("a stuffed teddy bear beside a bear", ["teddy bear", "bear"]),
        ("a roll of toilet paper", []),
        ("a train station without train tracks", []),
        ("knives, mice, sheep and sandwiches", ["knife", "mouse", "sheep", "sandwich"]),
        ("two puppies and geese", ["dog", "bird"]),
        ("a baby elephant with a baby", ["elephant", "person"]),
        ("a young policeman by a police car", ["person", "car"]),
        ("a couple of dogs watch a couple", ["dog", "person"]),
        ("a crowd of people", ["person"]),
        ("an orange next to a banana", ["orange", "banana"]),
        ("a bowl of oranges", ["bowl", "orange"]),
        ("an orange", ["orange"]),
        ("a man in orange", ["person"]),
        ("an orange cat", ["cat"]),
        ("a black and orange cat", ["cat"]),
        ("an orange and white cat", ["cat"]),
        ("a traffic light over a stop sign", ["traffic light", "stop sign"]),
        ("a red light", []),
        ("grass", []),
        ("", []),
    ],
)
def test_what_a_caption_mentions(caption: str, said: list[str]) -> None:
    words = tokenize(caption)
    found = find_mentions(words)
    assert [mention.category for mention in found] == said
    for mention in found:
        assert PHRASES[tuple(words[mention.start : mention.end])] == mention.category


def test_every_category_is_known_by_its_name_and_its_plural() -> None:
    assert len(CATEGORIES) == 80
    for category in CATEGORIES:
        assert [m.category for m in find_mentions(f"the {category}".split())] == [category]
    # A word names one category, or the last one listed would take it from the others.
    words = [word for category, others in CATEGORIES.items() for word in (category, *others)]
    assert len(words) == len(set(words))


CAPTIONS = {"a": "a dog and a cat on a couch", "b": "a man rides a horse", "c": "green grass"}
OBJECTS = {"a": ["dog", "couch", "book"], "b": ["person", "horse"], "c": ["frisbee"]}
REFERENCES = {"a": ["a dog"], "b": ["a horse"], "c": ["grass"]}


def test_chair_counts_mentions_captions_and_what_is_there() -> None:
    scores = evaluate_captions(CAPTIONS, REFERENCES, objects=OBJECTS, meteor=False)
    assert scores.values["chair_i"] == pytest.approx(1 / 5)  # the cat, of five mentions
    assert scores.values["chair_s"] == pytest.approx(1 / 3)
    assert scores.values["object_recall"] == pytest.approx(4 / 6)
    low, high = scores.intervals["chair_s"]
    assert low == 0 and high > 1 / 3
    assert scores.to_dict()["chair_i"] == 20


def test_a_caption_that_mentions_nothing_gets_nothing_wrong() -> None:
    scores = evaluate_captions(
        dict.fromkeys(CAPTIONS, "it is nice"), REFERENCES, objects=OBJECTS, meteor=False
    )
    assert [scores.values[name] for name in ("chair_i", "chair_s", "object_recall")] == [0, 0, 0]


def test_two_systems_are_compared() -> None:
    careful = CAPTIONS | {"a": "a dog on a couch"}
    comparison = compare_captions(CAPTIONS, careful, REFERENCES, objects=OBJECTS, meteor=False)
    assert comparison.differences["chair_i"].value == pytest.approx(1 / 5)
    assert comparison.differences["object_recall"].value == 0


def test_references_without_objects_say_nothing_of_objects() -> None:
    images = [CaptionedImage("a.jpg", ("a dog",), ""), CaptionedImage("b.jpg", ("grass",), "")]
    assert objects_by_image(images) is None
    images[0] = CaptionedImage("a.jpg", ("a dog",), "", ("dog",))
    assert objects_by_image(images) == {"a": ("dog",), "b": ()}
    assert "chair_i" not in evaluate_captions(CAPTIONS, REFERENCES, meteor=False).values
