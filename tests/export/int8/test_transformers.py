"""CLIP's encoder in a bundle: weights stored once, in 8 bits, for both precisions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from support import tiny_clip

from captioner.export.graphs import encoder_graph
from captioner.export.int8.quantizer import Quantizer
from captioner.export.int8.ranges import widen
from captioner.export.int8.smoothing import smooth
from captioner.export.network import round_weights
from captioner.export.shared_weights import session
from captioner.model.graphs.check import check_graph
from captioner.nn.encoder.clip import ByteLinear
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.training.weights.stored import BYTES, stored_weights

SIZE = 64


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    small = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    return small.repeat(8, axis=1).repeat(8, axis=2)


def make(name: str = tiny_clip.NAME) -> CaptionModel:
    torch.manual_seed(0)
    model = CaptionModel(ModelOptions(encoder=name, image_size=SIZE, features=24, hidden=24), 12)
    for module in model.encoder.backbone.modules():
        if isinstance(module, ByteLinear):
            torch.nn.init.normal_(module.weight, std=0.15)
            with torch.no_grad():  # a feature that is far larger than the others
                module.weight[3] *= 8
    return model.eval()


@torch.inference_mode()
def cells(model: CaptionModel, pixels: np.ndarray) -> torch.Tensor:
    return model.encoder(torch.from_numpy(pixels))


def test_smoothing_leaves_the_function_as_it_is(pixels: np.ndarray, monkeypatch) -> None:
    model = make()
    before = cells(model, pixels)
    slopes = model.encoder.backbone.segments[0].blocks[0].slope.clone()
    monkeypatch.setattr("captioner.export.int8.smoothing.round_to_bytes", lambda weight: None)
    smooth(model, pixels)
    torch.testing.assert_close(cells(model, pixels), before, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(model.encoder.backbone.segments[0].blocks[0].slope, slopes)


def test_weights_are_stored_in_bytes_and_read_back(pixels: np.ndarray) -> None:
    model = make()
    smooth(model, pixels)
    round_weights(model)
    graph = encoder_graph(model)
    content = graph.SerializeToString()
    check_graph(content)
    kinds = {tensor.name: tensor.data_type for tensor in graph.graph.initializer}
    assert TensorProto.INT8 in {kind for name, kind in kinds.items() if name.endswith(BYTES)}
    stored, own = stored_weights(content), model.state_dict()
    for name in ("blocks.0.query", "blocks.1.expand", "blocks.1.shrink"):
        name = f"encoder.backbone.segments.0.{name}.weight"
        torch.testing.assert_close(stored[name], own[name], rtol=1e-5, atol=1e-6)


def test_int8_shares_the_bytes_and_says_nearly_the_same(pixels: np.ndarray) -> None:
    model = make()
    smooth(model, pixels)
    round_weights(model)
    graph = encoder_graph(model).SerializeToString()
    exact, rounded = session(graph), quantized(graph, pixels)
    check_graph(rounded, {"encoder.onnx": graph})
    names = [value.name for value in exact.get_outputs() if value.name.startswith("memory.")]
    int8 = session(rounded, {"encoder.onnx": graph})
    for wanted, found in zip(
        exact.run(names, {"pixels": pixels}), int8.run(names, {"pixels": pixels}), strict=True
    ):
        assert cosine(wanted, found) > 0.98
    # No image depends on the others of its batch.
    for whole, alone in zip(
        int8.run(names, {"pixels": pixels[:3]}), int8.run(names, {"pixels": pixels[:1]}), strict=True
    ):
        np.testing.assert_allclose(whole[:1], alone, rtol=1e-4, atol=1e-4)
    held = onnx.load_from_string(rounded).graph.initializer
    own = sum(len(tensor.raw_data) for tensor in held)
    assert own < len(graph) / 3


def quantized(graph: bytes, pixels: np.ndarray) -> bytes:
    quantizer = Quantizer(graph)
    observed, ranges = quantizer.observed(), {}
    values = observed.run(quantizer.activations, {"pixels": pixels})
    widen(ranges, zip(quantizer.activations, values, strict=True))
    return quantizer.quantize(ranges, "encoder.onnx")


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return float(((first * second).sum(-1) / lengths).mean())
