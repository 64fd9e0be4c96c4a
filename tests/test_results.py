"""What a Python user may expect of a caption: text, numbers, equality, pickling, JSON."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from captioner import Alternative, Caption, Word
from captioner.errors import OptionsError
from captioner.folder.text import TextOptions


def make(seed: int = 0, source: object = "dogs/1.jpg") -> Caption:
    maps = np.random.default_rng(seed).random((2, 3, 4), dtype=np.float32)
    words = (Word("black", -0.25, maps[0]), Word("dog", -0.5, maps[1], 0.2))
    return Caption("black dog", -1.0, words, (Alternative("a dog", -2.0),), "m@1", source, 0.41)


def test_a_caption_prints_as_its_text_and_shows_itself_in_short() -> None:
    caption = make()
    assert str(caption) == f"{caption}" == "black dog" and str(caption.words[1]) == "dog"
    assert repr(caption) == "Caption('black dog', log_prob=-1.00, confidence=0.41)"
    assert repr(caption.words[0]) == "Word('black', probability=0.78)"
    assert str(caption.alternatives[0]) == "a dog"


def test_the_probability_of_a_word() -> None:
    assert make().words[1].probability == pytest.approx(math.exp(-0.5))
    assert Word("a", 1e-9).probability == 1.0  # rounding in float32 may go above zero


def test_captions_are_equal_by_content() -> None:
    assert make() == make(source=b"the same photo, read elsewhere") and hash(make()) == hash(make())
    assert make() != make(seed=1)
    assert make() != dataclasses.replace(make(), confidence=None) and make() != "black dog"
    plain = Word("black", -0.25)
    assert plain != make().words[0] and make().words[0] != plain and plain == Word("black", -0.25)


def test_captions_can_be_pickled_and_copied() -> None:
    caption = make()
    assert pickle.loads(pickle.dumps(caption)) == copy.deepcopy(caption) == caption
    assert pickle.loads(pickle.dumps(caption)).source == "dogs/1.jpg"


def test_a_caption_as_json_and_back() -> None:
    record = make().to_dict()
    assert record["image"] == "dogs/1.jpg" and record["confidence"] == 0.41
    assert make(source=Path("dogs") / "1.jpg").to_dict()["image"] == str(Path("dogs") / "1.jpg")
    assert "image" not in make(source=b"bytes").to_dict()
    assert "confidence" not in dataclasses.replace(make(), confidence=None).to_dict()
    back = Caption.from_dict(record)
    assert back.text == "black dog" and back.confidence == 0.41 and back.source == "dogs/1.jpg"


def test_a_style_words_the_same_fields_in_python_and_in_records() -> None:
    others = (Alternative("a man and a dog", -2.0),)
    caption = dataclasses.replace(
        make(), text="a woman and a dog", alternatives=others, keywords=("woman", "dog", "man", "person")
    )
    worded = caption.in_style("alt")
    assert worded.text == caption.alt_text == "A person and a dog."
    assert worded.alternatives == (Alternative("A person and a dog.", -2.0),)
    assert worded.keywords == ("person", "dog")
    for style in ("caption", "alt"):
        record = TextOptions(style=style).transform(caption.to_dict())
        assert record == caption.in_style(style).to_dict()
    short = make().to_dict(alternatives=False)
    assert TextOptions(style="alt").transform(short) == {**short, "caption": "Black dog."}


@pytest.mark.parametrize("style", ["poem", "", None, ["alt"]])
def test_an_unknown_style_is_an_error_that_names_the_known_ones(style) -> None:
    with pytest.raises(OptionsError, match="style must be one of caption, alt, got") as caught:
        make().in_style(style)
    assert caught.value.field == "style"
