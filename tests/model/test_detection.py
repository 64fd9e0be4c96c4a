"""Keywords of photos: what the caption names and the photo supports, and what else is detected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from captioner import Caption, Captioner, CaptionOptions
from captioner.model.detection import Detection
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.protobuf import caption_from_proto, caption_to_proto

EXAMPLES = Path(__file__).parents[2] / "examples"
VOCABULARY = Vocabulary(
    [
        *SPECIAL,
        *[
            "a",
            "man",
            "woman",
            "on",
            "dog",
            "dogs",
            "beach",
            "frisbee",
            "orange",
            "oranges",
            "bike",
            "bicycle",
        ],
        "ball",
        "raccoon",
    ]
)


def detection(evidence: dict[str, float] | None = None, **log_probs: float) -> Detection:
    """Of one photo, by words; the last two words of the vocabulary name classes."""
    values = np.full((1, len(VOCABULARY)), -6.0)
    for word, value in log_probs.items():
        values[0, VOCABULARY.forms(word)[0]] = value
    named = [[(evidence or {}).get(word, 0.0) for word in VOCABULARY.words[-2:]]]
    return Detection(VOCABULARY, values, np.array(named))


@pytest.mark.parametrize(
    ("found", "caption", "keywords"),
    [
        (detection(dog=-2, beach=-4), "a dog on a beach", ["dog", "beach"]),
        (detection(dog=-2), "a dog on a beach", ["dog"]),  # which the photo does not show
        (detection(dogs=-2), "a dog", ["dog"]),
        (detection({"raccoon": 9.0}), "a raccoon", ["raccoon"]),
        (detection(dog=-2, frisbee=-3, beach=-2.5, ball=-4), "a dog", ["dog", "beach", "frisbee"]),
        (detection(man=-2, woman=-2), "a man", ["man"]),  # one guess of who it is
        (detection(dog=-2, bike=-2, bicycle=-1), "a dog", ["dog", "bicycle"]),  # one name of a thing
        (detection(bike=-2, bicycle=-1), "a bike", ["bike"]),
        (detection(a=-1, on=-1), "a dog", []),
        (detection(dog=-2, orange=-1), "a dog in an orange vest", ["dog"]),  # which has no fruit
        (detection(dog=-2, orange=-1), "a dog", ["dog"]),  # as many captions say it of a colour
        (detection(dog=-2, orange=-4), "a dog by an orange", ["dog", "orange"]),
        (detection(dog=-2, oranges=-1), "a dog", ["dog", "orange"]),
        (Detection(VOCABULARY, None, None), "a dog on a beach", ["dog", "beach"]),
    ],
)
def test_keywords_are_what_the_photo_supports(found: Detection, caption: str, keywords: list[str]) -> None:
    assert list(found.keywords(0, caption.split())) == keywords


def test_keywords_come_with_captions_that_ask_for_them() -> None:
    captioner = Captioner.load()
    photo = EXAMPLES / "cat.jpg"
    plain, asked = captioner.caption(photo), captioner.caption(photo, CaptionOptions(keywords=True))
    assert plain.keywords == () and "keywords" not in plain.to_dict()
    assert asked.text == plain.text and "cat" in asked.keywords
    assert Caption.from_dict(asked.to_dict()).keywords == asked.keywords
    assert caption_from_proto(caption_to_proto(asked)).keywords == asked.keywords
