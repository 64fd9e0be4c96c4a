"""What a model may be."""

from __future__ import annotations

import pytest
import torch
from support import tiny_cnn

from captioner.errors import DataError
from captioner.nn.model import CaptionModel, ModelOptions


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"decoder": "gru"}, "unknown decoder 'gru'"),
        ({"attention": "dot"}, "unknown attention 'dot'"),
        ({"stride": 4}, "stride must be one of"),
        ({"image_size": 100}, "multiple of 32"),
        ({"image_size": 0}, "multiple of 32"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": float("nan")}, "dropout"),
    ],
)
def test_what_cannot_be_is_refused(values: dict, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        ModelOptions(**values)


@pytest.mark.parametrize(("stride", "side"), [(8, 8), (16, 4), (32, 2)])
def test_from_pixels_to_a_first_step(stride: int, side: int) -> None:
    options = ModelOptions(
        encoder=tiny_cnn.NAME,
        image_size=64,
        stride=stride,
        features=8,
        attention_hidden=6,
        hidden=9,
        embedding=7,
    )
    assert options.grid == (side, side)
    model = CaptionModel(options, vocabulary=11).eval()
    memory, state = model.encode(torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8))
    assert memory["values"].shape == (2, side * side, 8)
    step = model.decoder.step(torch.ones(2, 1, dtype=torch.int64), memory, state)
    assert step.logits.shape == (2, 1, 11) and step.attention.shape == (2, 1, side * side)
