"""Graphs with fewer nodes and less arithmetic compute the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from support.graphs import make_model

from captioner.export.rewrites.fusion import fuse


@pytest.mark.parametrize("several", [0, 2, 6], ids=lambda number: f"{number} of 7 are sums")
def test_columns_that_copy_a_value_are_not_multiplied(several: int) -> None:
    random = np.random.default_rng(several)
    matrix = np.zeros((5, 7), dtype=np.float32)
    matrix[random.integers(0, 5, 7), np.arange(7)] = 1
    matrix[:, :several] = np.arange(several) % 2  # of none, and of all
    model = make_model(
        [helper.make_node("MatMul", ["x", "matrix"], ["y"])],
        {"x": ["batch", 3, 5]},
        {"y": ["batch", 3, 7]},
        {"matrix": matrix},
    )
    fuse(model)
    onnx.checker.check_model(model)
    assert ("Gather" in {node.op_type for node in model.graph.node}) == (several < 4)
    # Rows are gathered, which is faster.
    assert not any(
        attribute.name == "axis" and attribute.i in (2, -1)
        for node in model.graph.node
        if node.op_type == "Gather" and node.input[0].startswith("y")
        for attribute in node.attribute
    )
    x = random.random((2, 3, 5), dtype=np.float32)
    [y] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(y, x @ matrix, rtol=1e-6)


@pytest.mark.parametrize("stride", [4, 2], ids=["blocks", "overlapping"])
def test_means_of_blocks_are_those_of_pooling(stride: int) -> None:
    pool = {"kernel_shape": [4, 4], "strides": [stride, stride]}
    model = make_model(
        [
            helper.make_node("Abs", ["x"], ["positive"]),
            helper.make_node("AveragePool", ["positive"], ["y"], **pool),
        ],
        {"x": ["batch", 3, 8, 12]},
        {"y": ["batch", 3, "rows", "columns"]},
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 12), dtype=np.float32)
    [pooled] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    fuse(model)
    onnx.checker.check_model(model)
    assert ("AveragePool" in {node.op_type for node in model.graph.node}) == (stride == 2)
    [y] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(y, pooled, rtol=1e-6)
