"""What another network sees in the training photos."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from support import squares

from captioner.errors import DataError
from captioner.training.data.augment import crop_box
from captioner.training.data.examples import load_examples
from captioner.training.data.teacher_features import FeatureNetwork, TeacherFeatures, build_features
from captioner.training.loop.trainer import Trainer
from captioner.training.objectives.feature_distillation import FeatureReader
from captioner.training.weights import checkpoint

CPU = torch.device("cpu")
SIDE = squares.SIZE


def write_network(path: Path, *outputs: str, side: int | str = SIDE) -> Path:
    """A network that gives "cells", the mean colours of 8 x 8 pixels, the same as "tokens" with one more
    before them, and "whole", the mean colour."""
    nodes = [
        helper.make_node("AveragePool", ["pixels"], ["cells"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("GlobalAveragePool", ["pixels"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["whole"]),
        helper.make_node("Flatten", ["cells"], ["flat"], axis=2),
        helper.make_node("Shape", ["cells"], ["shape"]),
        helper.make_node("Constant", [], ["lines"], value_ints=[0, 3, -1]),
        helper.make_node("Reshape", ["cells", "lines"], ["columns"]),
        helper.make_node("Constant", [], ["line"], value_ints=[0, 3, 1]),
        helper.make_node("Reshape", ["mean", "line"], ["class"]),
        helper.make_node("Concat", ["class", "columns"], ["joined"], axis=2),
        helper.make_node("Transpose", ["joined"], ["tokens"], perm=[0, 2, 1]),
    ]
    shapes = {
        "cells": ["batch", 3, None, None],
        "tokens": ["batch", None, 3],
        "whole": ["batch", 3],
        "shape": [4],
    }
    graph = helper.make_graph(
        nodes,
        "colors",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, side, side])],
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name == "shape" else TensorProto.FLOAT, shapes[name]
            )
            for name in outputs
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def network(path: Path, normalization: str = "imagenet") -> FeatureNetwork:
    return FeatureNetwork(path, normalization, SIDE, CPU)


@pytest.mark.parametrize("output", ["cells", "tokens"])
@pytest.mark.parametrize("side", [SIDE, "side"])
def test_maps_and_tokens_are_read_alike(tmp_path: Path, output: str, side: int | str) -> None:
    found = network(write_network(tmp_path / "n.onnx", output, "whole", side=side), "clip")
    pixels = np.random.default_rng(0).integers(0, 256, (2, SIDE, SIDE, 3), dtype=np.uint8)
    features = found(pixels)
    mean, deviation = np.array([0.481, 0.458, 0.408]), np.array([0.2686, 0.2613, 0.2758])
    normal = (pixels / 255 - mean) / deviation
    cells = normal.reshape(2, 4, 8, 4, 8, 3).mean(axis=(2, 4)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(features["cells"], cells, atol=3e-3)
    np.testing.assert_allclose(features["whole"][:, :, 0, 0], normal.mean(axis=(1, 2)), atol=3e-3)


def test_tokens_alone_have_no_feature_of_the_whole(tmp_path: Path) -> None:
    features = network(write_network(tmp_path / "n.onnx", "tokens"))(np.zeros((1, SIDE, SIDE, 3), np.uint8))
    assert list(features) == ["cells"]


def test_networks_without_features_of_places_are_refused(tmp_path: Path, data: Path) -> None:
    with pytest.raises(DataError, match="cannot read the teacher network"):
        network(tmp_path / "none.onnx")
    with pytest.raises(DataError, match="not an ONNX network"):
        network(data / "captions.json")
    nothing = np.zeros((1, SIDE, SIDE, 3), np.uint8)
    with pytest.raises(DataError, match="no spatial features"):
        network(write_network(tmp_path / "n.onnx", "whole", "shape"))(nothing)
    with pytest.raises(DataError, match="does not take photos"):
        network(write_network(tmp_path / "n.onnx", "cells"))(nothing[:, :-1])


def test_features_are_those_of_what_a_view_shows() -> None:
    """A crop of a map of coordinates holds the coordinates of the crop."""
    places = (np.arange(14) + 0.5) / 14
    ramp = np.stack(np.meshgrid(places, places)).astype(np.float16)
    noise = np.random.default_rng(0).normal(size=(2, 5, 1, 1)).astype(np.float16)
    boxes = np.float32([[[0, 0, 1, 1], [0.25, 0.125, 0.75, 0.875]]] * 2)
    cache = TeacherFeatures({"cells": np.stack([ramp, ramp]), "whole": noise}, boxes)
    assert cache.sizes == [2, 5]
    images = torch.tensor([1, 1, 1, 1])
    cells, whole = cache.take(images, torch.tensor([0, 1, 2, 3]))
    scale = torch.from_numpy(ramp).float().std()
    x, y = (cells * scale + 0.5).unbind(dim=1)  # of 1
    assert x.shape == (4, 14, 14) and whole.shape == (4, 5, 1, 1)
    expected = torch.from_numpy(places).float()
    for row, (left, top, right, bottom) in enumerate(
        [(0, 0, 1, 1), (1, 0, 0, 1), (0.25, 0.125, 0.75, 0.875), (0.75, 0.125, 0.25, 0.875)]
    ):
        torch.testing.assert_close(x[row].mean(0), left + expected * (right - left), atol=0.01, rtol=0)
        torch.testing.assert_close(y[row].mean(1), top + expected * (bottom - top), atol=0.01, rtol=0)
    assert torch.equal(whole[0], whole[3])


def test_features_are_computed_once(data: Path, tmp_path: Path) -> None:
    examples = load_examples(squares.options().data, data, "train")
    found = network(write_network(tmp_path / "n.onnx", "cells", "whole"))
    told: list[int] = []
    cache = build_features(tmp_path, found, examples, 2, lambda done, total: told.append(done))
    assert told == [24]
    again = build_features(tmp_path, found, examples, 2, lambda done, total: told.append(done))
    assert told == [24]
    images, views = torch.arange(24), torch.arange(24) % 6
    for one, other in zip(cache.take(images, views), again.take(images, views), strict=True):
        assert torch.equal(one, other)
    cells, whole = cache.take(images, torch.zeros_like(images))
    torch.testing.assert_close(cells.mean(dim=(0, 2, 3)), torch.zeros(3), atol=0.01, rtol=0)
    torch.testing.assert_close(whole.std(dim=0), torch.ones(3, 1, 1), atol=0.05, rtol=0)


def test_boxes_are_those_of_the_crops() -> None:
    for number in range(1, 50):
        left, top, right, bottom = crop_box((200, 120), "a", number)
        assert 0 <= left < right <= 200 and 0 <= top < bottom <= 120
        assert 0.55 < (right - left) * (bottom - top) / (200 * 120) <= 1


def test_the_reader_knows_when_all_is_told() -> None:
    torch.manual_seed(0)
    grid, weight = torch.randn(3, 16, 6), torch.randn(4, 6)
    reader = FeatureReader(6, [4, 4])
    for layer in reader.readers:
        layer.weight.data, layer.bias.data = weight, torch.zeros(4)
    cells = (grid @ weight.T).transpose(1, 2).unflatten(2, (4, 4))
    whole = (grid.mean(dim=1) @ weight.T)[:, :, None, None]
    with torch.no_grad():
        assert float(reader(grid, (4, 4), [cells, whole])) == pytest.approx(0, abs=1e-6)
        assert float(reader(grid, (4, 4), [cells, whole + 1])) == pytest.approx(1, abs=1e-5)
        assert float(reader(grid, (4, 4), [-cells, whole])) == pytest.approx(4 * float(cells.square().mean()))


def test_a_grid_learns_to_foretell(data: Path, cache: Path, tmp_path: Path) -> None:
    """Stopped and gone on with or not, and nothing of it is left in the model."""
    place = str(write_network(tmp_path / "n.onnx", "cells", "whole"))
    source = dataclasses.replace(squares.options().data[0], repeat=4)
    stage = squares.stage(
        epochs=3,
        objectives={"cross_entropy": 1.0, "feature_distillation": {"network": place}},
        zoom=0.6,
        encoder_learning_rate=1e-3,
    )
    options = squares.options((stage,), data=(source,), crops=1)

    def error(trainer: Trainer) -> float:
        images = torch.arange(24)
        as_it_is = torch.zeros_like(images)
        learnt = trainer.losses["feature_distillation"]
        with torch.no_grad():
            grid = trainer.model.encoder(trainer.features.maps(images, as_it_is, CPU)[0])
            return float(learnt.reader(grid, (4, 4), learnt.features.take(images, as_it_is)))

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trainer = squares.trainer(options, whole, data, cache)
    before = error(trainer)
    history = trainer.run()
    assert error(trainer) < before / 2
    first, last = (history[number]["losses"]["feature_distillation"] for number in (0, -1))
    assert last < first < history[0]["loss"]
    squares.trainer(options, parts, data, cache)._run_epoch()
    squares.trainer(options, parts, data, cache).run()
    kept, again = (checkpoint.load(folder / "last.pt") for folder in (whole, parts))
    for part in ("model", "objectives"):
        assert all(torch.equal(value, again[part][name]) for name, value in kept[part].items())
    model, *_ = checkpoint.load_model(whole / "best.pt")
    assert not [name for name in model.state_dict() if "reader" in name]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "feature_distillation needs a network"),
        ({"network": "n.onnx", "weight": -1.0}, "weight must be at least 0"),
        ({"network": "n.onnx", "normalization": "other"}, "normalization must be one of imagenet, clip"),
    ],
)
def test_wrong_options_are_rejected(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=f"objectives.feature_distillation: {message}"):
        squares.stage(objectives={"feature_distillation": wrong})
