"""Weights are stored in fewer bytes, where the graph computes the same."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper
from support.graphs import make_model

from captioner.export.rewrites.storage import SMALLEST, store_compactly
from captioner.export.shared_weights import session
from captioner.training.weights.stored import stored_weights


def test_tables_of_small_integers_are_stored_in_16_bits() -> None:
    small = np.arange(SMALLEST) % 5000
    values = {"small": small, "large": small * 100}
    nodes = [
        onnx.helper.make_node("Gather", ["small", "x"], ["y"]),
        onnx.helper.make_node("Gather", ["large", "x"], ["z"]),
    ]
    integers = onnx.TensorProto.INT64
    model = make_model(nodes, {}, {}, values)
    model.graph.input.append(onnx.helper.make_tensor_value_info("x", integers, ["n"]))
    for name in ("y", "z"):
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, integers, ["n"]))
    store_compactly(model)
    stored = {one.name: numpy_helper.to_array(one).dtype for one in model.graph.initializer}
    assert stored == {"small.half": np.int16, "large": np.int64}
    content = model.SerializeToString()
    found = session(content).run(None, {"x": np.array([3, 1000])})
    assert [one.tolist() for one in found] == [[3, 1000], [300, 100000]]
    assert stored_weights(content)["small"].tolist() == small.tolist()


def test_tables_of_small_whole_numbers_are_stored_in_8_bits() -> None:
    """Which words name which classes: 0 and 1."""
    random = np.random.default_rng(0)
    table = random.integers(2, size=(32, SMALLEST)).astype(np.float32)
    model = make_model(
        [onnx.helper.make_node("MatMul", ["x", "table"], ["y"])],
        {"x": ["n", 32]},
        {"y": ["n", SMALLEST]},
        {"table": table},
    )
    before = model.SerializeToString()
    store_compactly(model)
    [stored] = model.graph.initializer
    assert (stored.name, numpy_helper.to_array(stored).dtype) == ("table.half", np.int8)
    feeds = {"x": random.standard_normal((3, 32)).astype(np.float32)}
    [exact], [found] = (session(content).run(None, feeds) for content in (before, model.SerializeToString()))
    assert np.array_equal(found, exact)
    assert np.array_equal(stored_weights(model.SerializeToString())["table"].numpy(), table)
