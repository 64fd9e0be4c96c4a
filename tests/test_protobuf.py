"""Conversion between options or captions and messages loses nothing, and covers every option."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from captioner import Alternative, Caption, CaptionOptions, OptionsError, Word
from captioner.protobuf import caption_from_proto, caption_to_proto, options_from_proto, options_to_proto
from captioner.v1 import captioner_pb2 as pb

FULL = CaptionOptions(
    beam_size=4,
    length_normalization=0.5,
    max_words=9,
    no_repeat_ngram=2,
    alternatives=3,
    include=("dog", "cat"),
    attention=False,
    attention_size=(3, 5),
    attention_head=1,
)


@pytest.mark.parametrize("options", [CaptionOptions(), FULL], ids=["defaults", "all set"])
def test_options_survive_the_way_there_and_back(options: CaptionOptions) -> None:
    message = pb.CaptionOptions.FromString(options_to_proto(options).SerializeToString())
    assert options_from_proto(message) == options


def test_every_option_travels() -> None:
    assert {field.name for field in dataclasses.fields(CaptionOptions)} == {
        field.name for field in pb.CaptionOptions.DESCRIPTOR.fields
    }
    assert all(getattr(FULL, f.name) != f.default for f in dataclasses.fields(CaptionOptions))


def test_options_out_of_range_are_rejected() -> None:
    with pytest.raises(OptionsError, match="beam_size") as caught:
        options_from_proto(pb.CaptionOptions(beam_size=99))
    assert caught.value.field == "beam_size"


def test_captions_survive_the_way_there_and_back() -> None:
    maps = np.random.default_rng(0).random((2, 3), dtype=np.float32)
    words = (Word("a", -0.5, maps, 0.25), Word("dog", -0.25))
    caption = Caption("a dog", -1.0, words, (Alternative("dogs", -3.0),), "m@1", "1.jpg", 0.5)
    message = pb.Caption.FromString(caption_to_proto(caption).SerializeToString())
    assert caption_from_proto(message, "1.jpg") == caption
    assert caption_from_proto(pb.Caption(text="a")).confidence is None


@pytest.mark.parametrize(
    "maps",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=">f4").reshape(4, 3),
        np.ones((64, 64), np.float32),
        np.zeros((1, 1), np.float32),
    ],
    ids=["transposed", "big-endian", "large", "one cell"],
)
def test_maps_travel_row_by_row_however_they_lie_in_memory(maps: np.ndarray) -> None:
    sent = caption_to_proto(Caption("a", -0.5, (Word("a", -0.5, maps),), (), "m@1"))
    assert list(sent.words[0].attention.weights) == maps.ravel().tolist()
    [word] = caption_from_proto(sent).words
    assert word.attention is not None
    assert np.array_equal(word.attention, maps)
