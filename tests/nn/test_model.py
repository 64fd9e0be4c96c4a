"""What a model may be."""

from __future__ import annotations

import pytest
import torch
from support import tiny_cnn

from captioner.errors import DataError
from captioner.images.letterbox import Letterbox
from captioner.nn.decoder import DECODERS
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import CaptionModel, ModelOptions


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"decoder": "gru"}, "unknown decoder 'gru'"),
        ({"attention": "dot"}, "unknown attention 'dot'"),
        ({"resize": "crop"}, "unknown resize 'crop'; there is squash, letterbox"),
        ({"stride": 4}, "stride must be one of"),
        ({"color_levels": 1}, "color_levels must be 0 or at least 2"),
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


@pytest.mark.parametrize("value", [-0.1, float("inf"), float("nan")])
def test_a_factor_is_finite_and_not_negative(value: float) -> None:
    for name in ("checklist_weight", "attended_detection"):
        with pytest.raises(DataError, match=f"{name} must be at least 0 and finite"):
            BonusOptions(**{name: value})
    with pytest.raises(DataError, match="mean_weight must be at least 0 and finite"):
        ModelOptions(mean_weight=value)


@pytest.mark.parametrize("name", ["checklist_weight", "attended_detection", "classes"])
def test_other_decoders_than_lstms_have_no_bonus(name: str) -> None:
    with pytest.raises(DataError, match="bonus needs the decoder lstm or two_lstm"):
        ModelOptions(decoder="transformer", bonus=BonusOptions(**{name: 1}))
    with pytest.raises(DataError, match="mean_weight needs the decoder lstm or two_lstm"):
        ModelOptions(decoder="transformer", mean_weight=0.5)


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


def letterboxed(**changes: object) -> CaptionModel:
    sizes = dict.fromkeys(("features", "attention_hidden", "hidden", "embedding"), 8)
    values = {"encoder": tiny_cnn.NAME, "image_size": 64, "resize": "letterbox", **sizes, **changes}
    options = ModelOptions(attention_heads=2, refiner_layers=2, **values)  # type: ignore[arg-type]
    return CaptionModel(options, vocabulary=11).eval()


def test_the_padding_has_the_mean_colour() -> None:
    assert letterboxed().letterbox == Letterbox(16, (124, 116, 104))
    assert letterboxed(encoder="efficientnet_lite0").letterbox == Letterbox(16, (127, 127, 127))
    assert letterboxed(resize="squash").letterbox is None


@torch.inference_mode()
def test_a_mask_of_all_cells_changes_nothing() -> None:
    model = letterboxed()
    pixels = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    whole = model.encode(pixels, torch.ones(2, 16, dtype=torch.bool))
    for ours, theirs in zip(whole, model.encode(pixels), strict=True):
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], msg=name)


@pytest.mark.parametrize("decoder", DECODERS)
@torch.inference_mode()
def test_what_masked_cells_hold_changes_nothing(decoder: str) -> None:
    """To the bit, through the refiner and the decoder; at stride 32 no other cell has seen them before."""
    model = letterboxed(stride=32, image_size=128, decoder=decoder)
    stage = torch.randn(3, 32, 4, 4)
    mask = torch.ones(3, 4, 4, dtype=torch.bool)
    mask[0, 2:] = mask[1, :, 0] = False
    other = torch.where(mask.unsqueeze(1), stage, 100 * torch.randn_like(stage))
    tokens = torch.randint(4, 11, (3, 2, 5))
    flat = mask.flatten(1)
    said = [
        model.decoder(tokens, *model.decoder.prepare(model.encoder.fuse([cells], flat), flat))
        for cells in (stage, other)
    ]
    for one, two in zip(*said, strict=True):
        assert torch.equal(one, two)
    attention = said[0][1]
    assert (attention.masked_select(~flat[:, None, None].expand_as(attention)) == 0).all()
    torch.testing.assert_close(attention.sum(dim=-1), torch.ones(3, 2, 5))
