"""Values that stay on the device, as on a GPU; ONNX Runtime binds them on a CPU too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from captioner.model.bundle import Bundle
from captioner.model.graphs.graph import Graph


@pytest.fixture
def graphs(tiny_bundle: Path) -> list[Graph]:
    """Encoder and decoder, which keep their outputs where they compute."""
    bundle = Bundle.load(tiny_bundle)
    sessions = [ort.InferenceSession(content) for content in (bundle.encoder, bundle.decoder)]
    graphs = [Graph(session, ("cpu", 0)) for session in sessions]
    for graph in graphs:
        graph.on_cpu = False
    return graphs


def test_what_the_encoder_keeps_feeds_the_decoder(tiny_bundle: Path, graphs: list[Graph]) -> None:
    encoder, decoder = graphs
    size = Bundle.load(tiny_bundle).image_size
    pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), dtype=np.uint8)
    _, kept = encoder.run({"pixels": pixels}, (), list(encoder.outputs))
    assert all(isinstance(value, ort.OrtValue) for value in kept.values())
    asked: dict[str, np.ndarray] = {
        "tokens": np.ones((2, 1), dtype=np.int64),
        "parents": np.zeros((2, 1), dtype=np.int64),
    }
    if "count" in decoder.inputs:
        zeros = np.zeros((2, 1, 1), dtype=np.int64)
        asked |= {"count": np.array([3]), "forbidden": zeros, "asked": zeros[0, 0]}
    following = [name for name in decoder.outputs if name.startswith("next.")]
    fetched, state = decoder.run({**asked, **kept}, ["log_probs", "attention"], following)
    decoder.on_cpu = encoder.on_cpu = True
    _, arrays = encoder.run({"pixels": pixels}, (), list(encoder.outputs))
    expected, state_there = decoder.run({**asked, **arrays}, ["log_probs", "attention"], following)
    for name, value in expected.items():
        np.testing.assert_allclose(fetched[name], value, rtol=1e-5, atol=1e-6)
    for name, value in state_there.items():
        np.testing.assert_allclose(state[name].numpy(), value, rtol=1e-5, atol=1e-6)


def test_an_array_is_placed_on_the_device(graphs: list[Graph]) -> None:
    value = np.arange(12, dtype=np.float32).reshape(3, 4).T  # not in order
    placed = graphs[0].place(value)
    assert isinstance(placed, ort.OrtValue) and np.array_equal(placed.numpy(), value)
