"""Nodes that ONNX Runtime computes faster give the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import helper
from support.graphs import make_model

from captioner.export.rewrites.editor import GraphEditor
from captioner.export.rewrites.slow_nodes import replace_slow_nodes

Array = npt.NDArray[Any]


def test_a_memory_is_multiplied_by_one_query_at_a_time() -> None:
    """The values of an attention, (batch, cells, features), and its keys, which are transposed."""
    graph = make_model(
        [
            helper.make_node("Transpose", ["keys"], ["columns"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["query", "columns"], ["scores"]),
            helper.make_node("MatMul", ["scores", "values"], ["context"]),
        ],
        {"query": ["batch", "beams", 6], "keys": ["batch", 5, 6], "values": ["batch", 5, 7]},
        {"scores": ["batch", "beams", 5], "context": ["batch", "beams", 7]},
    )
    feeds = {"query": random(2, 3, 6), "keys": random(2, 5, 6), "values": random(2, 5, 7)}
    before, after = run(graph, feeds), run(replaced(graph), feeds)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    shapes = {value.name: value.type.tensor_type.shape.dim for value in inferred(graph)}
    products = [node for node in graph.graph.node if node.op_type == "MatMul"]
    assert [len(shapes[node.output[0]]) for node in products] == [4, 4]
    again = replaced(graph)
    assert sum(node.op_type == "Unsqueeze" for node in again.graph.node) == 4


def test_products_of_other_values_stay() -> None:
    graph = make_model(
        [helper.make_node("Abs", ["x"], ["memory"]), helper.make_node("MatMul", ["query", "memory"], ["y"])],
        {"query": ["batch", 3, 5], "x": ["batch", 5, 7]},
        {"y": ["batch", 3, 7]},
    )
    assert [node.op_type for node in replaced(graph).graph.node] == ["Abs", "MatMul"]


@pytest.mark.parametrize("side", [3, 9], ids=["few pixels", "many pixels"])
def test_small_maps_are_enlarged_by_a_product(side: int) -> None:
    sizes = np.array([0, 4, 4 * side * side])
    graph = make_model(
        [
            helper.make_node("Transpose", ["large"], ["first"], perm=[0, 3, 1, 2]),
            helper.make_node("Transpose", ["small"], ["second"], perm=[0, 3, 1, 2]),
            helper.make_node("Resize", ["second", "", "scales"], ["enlarged"], mode="linear"),
            helper.make_node("Add", ["first", "enlarged"], ["sum"]),
            helper.make_node("Reshape", ["sum", "sizes"], ["flat"]),
            helper.make_node("Transpose", ["flat"], ["y"], perm=[0, 2, 1]),
        ],
        {"large": ["batch", 2 * side, 2 * side, 4], "small": ["batch", side, side, 4]},
        {"y": ["batch", 4 * side * side, 4]},
        {"scales": np.array([1, 1, 2, 2], dtype=np.float32), "sizes": sizes},
    )
    feeds = {"large": random(2, 2 * side, 2 * side, 4), "small": random(2, side, side, 4)}
    before = run(graph, feeds)
    after = run(replaced(graph), feeds)
    np.testing.assert_allclose(before[0], after[0], rtol=1e-4, atol=1e-6)
    assert ("Resize" in kinds(graph)) == (side == 9)
    assert ("Transpose" in kinds(graph)) == (side == 9)


def test_only_graphs_that_stay_on_the_cpu_multiply_single_queries() -> None:
    graph = make_model(
        [helper.make_node("MatMul", ["query", "memory"], ["y"])],
        {"query": ["batch", 3, 5], "memory": ["batch", 5, 7]},
        {"y": ["batch", 3, 7]},
    )
    assert kinds(replaced(graph, only_cpu=False)) == ["MatMul"]
    assert kinds(replaced(graph)) == ["Unsqueeze", "Unsqueeze", "MatMul", "Squeeze"]


def test_a_sum_of_three_maps_stays() -> None:
    turned = [
        helper.make_node("Transpose", [name], [f"{name}.first"], perm=[0, 3, 1, 2])
        for name in ("a", "b", "c")
    ]
    graph = make_model(
        [
            *turned,
            helper.make_node("Resize", ["b.first", "", "two"], ["b.large"], mode="linear"),
            helper.make_node("Resize", ["c.first", "", "four"], ["c.large"], mode="linear"),
            helper.make_node("Add", ["a.first", "b.large"], ["sum"]),
            helper.make_node("Add", ["sum", "c.large"], ["total"]),
            helper.make_node("Reshape", ["total", "sizes"], ["flat"]),
            helper.make_node("Transpose", ["flat"], ["y"], perm=[0, 2, 1]),
        ],
        {"a": ["batch", 8, 8, 4], "b": ["batch", 4, 4, 4], "c": ["batch", 2, 2, 4]},
        {"y": ["batch", 64, 4]},
        {
            "two": np.array([1, 1, 2, 2], dtype=np.float32),
            "four": np.array([1, 1, 4, 4], dtype=np.float32),
            "sizes": np.array([0, 4, 64]),
        },
    )
    assert kinds(replaced(graph)).count("Resize") == 2


def test_means_that_keep_their_axes_keep_them() -> None:
    graph = make_model(
        [
            helper.make_node("Div", ["x", "most"], ["shares"]),
            helper.make_node("Reshape", ["shares", "blocks"], ["parts"]),
            helper.make_node("ReduceMean", ["parts", "axes"], ["y"]),
        ],
        {"x": ["batch", 3, 8]},
        {"y": ["batch", 3, 2, 1]},
        {
            "most": np.array(255, dtype=np.float32),
            "blocks": np.array([0, 3, 2, 4]),
            "axes": np.array([3]),
        },
    )
    feeds = {"x": random(2, 3, 8)}
    before = run(graph, feeds)
    np.testing.assert_allclose(before[0], run(replaced(graph), feeds)[0], rtol=1e-5)
    assert kinds(graph)[-1] == "Div"


def test_means_are_divided_instead_of_all_values() -> None:
    graph = make_model(
        [
            helper.make_node("Div", ["x", "most"], ["shares"]),
            helper.make_node("AveragePool", ["shares"], ["y"], kernel_shape=[4, 4], strides=[4, 4]),
        ],
        {"x": ["batch", 3, 8, 12]},
        {"y": ["batch", 3, 2, 3]},
        {"most": np.array(255, dtype=np.float32)},
    )
    feeds = {"x": random(2, 3, 8, 12)}
    before = run(graph, feeds)
    after = run(replaced(graph), feeds)
    np.testing.assert_allclose(before[0], after[0], rtol=1e-5)
    assert kinds(graph) == ["Reshape", "ReduceMean", "Div"]


def replaced(graph: onnx.ModelProto, only_cpu: bool = True) -> onnx.ModelProto:
    editor = GraphEditor(graph)
    replace_slow_nodes(graph, editor, only_cpu)
    editor.write()
    onnx.checker.check_model(graph)
    return graph


def run(graph: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    found: list[Array] = onnxruntime.InferenceSession(graph.SerializeToString()).run(None, feeds)
    return found


def inferred(graph: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    return list(onnx.shape_inference.infer_shapes(graph).graph.value_info)


def kinds(graph: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in graph.graph.node]


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).random(shape, dtype=np.float32)
