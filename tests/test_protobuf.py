"""Conversion between options or captions and messages loses nothing, and covers every option."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from captioner import Alternative, Caption, CaptionOptions, OptionsError, Word
from captioner.model.calibration import Calibration
from captioner.model.info import ModelInfo
from captioner.options import OPTION_SPECS
from captioner.protobuf import (
    caption_from_proto,
    caption_to_proto,
    model_from_proto,
    model_to_proto,
    options_from_proto,
    options_to_proto,
)
from captioner.v1 import captioner_pb2 as pb

VALUES: dict[type, object] = {int: 2, float: 0.5, tuple: (3, 5), str: ("dog", "cat")}
FULL = CaptionOptions(
    **{
        name: not spec.default if spec.kind is bool else VALUES[spec.kind]  # type: ignore
        for name, spec in OPTION_SPECS.items()
    }
)
MODEL = ModelInfo(
    name="m",
    digest="0123456789ab",
    grid=(2, 3),
    device="cpu",
    provider="any",
    defaults=FULL,
    max_image_bytes=1,
    max_image_pixels=2,
    max_beam_size=3,
    max_words=4,
    calibration=Calibration(0.5, 0.25, "it is good"),
    models=("a", "b"),
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


def test_models_survive_the_way_there_and_back() -> None:
    assert {field.name for field in dataclasses.fields(ModelInfo)} == {
        field.name for field in pb.GetModelResponse.DESCRIPTOR.fields
    }
    message = pb.GetModelResponse.FromString(model_to_proto(MODEL).SerializeToString())
    assert model_from_proto(message) == MODEL
    unknown = model_from_proto(pb.GetModelResponse(name="old"))
    assert (unknown.name, unknown.attention_heads, unknown.calibration) == ("old", 1, None)


def test_clients_are_told_the_curve_that_needs_no_certainty() -> None:
    plain = Calibration(0.5, 0.25, "it is good")
    model = dataclasses.replace(MODEL, calibration=dataclasses.replace(plain, with_certainty=(0.4, 0.5)))
    assert model_from_proto(model_to_proto(model)).calibration == plain
    assert model.to_dict()["calibration"] == {"slope": 0.5, "intercept": 0.25, "event": "it is good"}


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
