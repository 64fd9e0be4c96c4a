"""Replaces nodes that ONNX Runtime computes slowly on the CPU by others with the same results.

The benefit of each was measured: docs/research/experiments.md, "Faster INT8 graphs" and
"Faster nodes in INT8".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from captioner.training.graph_editor import GraphEditor

Shapes = Mapping[str, list[int]]
"""The shape of each value; 0 for an axis that varies."""
_MOST_PIXELS = 64
"""Maps of more pixels are enlarged faster by `Resize` than by a product."""


def replace_slow_nodes(model: onnx.ModelProto, editor: GraphEditor, only_cpu: bool = False) -> None:
    """Apply the replacements below to `editor`, which edits `model`. Nodes that were replaced before stay as
    they are. `only_cpu`: the graph never runs on a GPU, where products of many single queries are slower."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    _gather_rows(editor, shapes)
    _average_blocks(editor, shapes)
    _divide_means(editor)
    _enlarge_by_products(editor, shapes)
    if only_cpu:
        _multiply_rows(editor, shapes, {value.name for value in model.graph.input})


def _gather_rows(editor: GraphEditor, shapes: Shapes) -> None:
    """Gather along the middle axis of a transposed value instead of along the last axis: whole rows are
    copied instead of single numbers."""
    for node in [node for node in editor.nodes if node.op_type == "Gather"]:
        (source, places), output = node.input, node.output[0]
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        ranks = len(shapes.get(source, ())), len(shapes.get(output, ()))
        if places not in editor.constants or ranks != (3, 3) or axis not in (2, -1):
            continue
        editor.remove([node])
        editor.add("Transpose", [source], [f"{output}.rows"], perm=[0, 2, 1])
        editor.add("Gather", [f"{output}.rows", places], [f"{output}.gathered"], axis=1)
        editor.add("Transpose", [f"{output}.gathered"], [output], perm=[0, 2, 1])


def _average_blocks(editor: GraphEditor, shapes: Shapes) -> None:
    """Average pooling without overlap is a mean over two axes of a reshaped value."""
    for pool in [node for node in editor.nodes if node.op_type == "AveragePool"]:
        given = {a.name: helper.get_attribute_value(a) for a in pool.attribute}
        kernel, (source, *_), output = given["kernel_shape"], pool.input, pool.output[0]
        shape = shapes.get(source, [])
        if any(given.get("pads", ())) or given.get("strides") != kernel or len(shape) != 4:
            continue
        (channels, *sizes), blocks = shape[1:], [0]
        if not all(size and size % length == 0 for size, length in zip(sizes, kernel, strict=True)):
            continue
        blocks.append(channels)
        for size, length in zip(sizes, kernel, strict=True):
            blocks += [size // length, length]
        editor.remove([pool])
        split = editor.constant(f"{output}.split", np.array(blocks))
        axes = editor.constant(f"{output}.axes", np.array([3, 5]))
        editor.add("Reshape", [source, split], [f"{output}.blocks"])
        editor.add("ReduceMean", [f"{output}.blocks", axes], [output], keepdims=0)


def _divide_means(editor: GraphEditor) -> None:
    """Divide the means of blocks by a constant, instead of all values before: there are fewer means."""
    producers = editor.producers()
    for mean in [node for node in editor.nodes if node.op_type == "ReduceMean"]:
        reshape = producers.get(mean.input[0])
        quotient = producers.get(reshape.input[0]) if reshape is not None else None
        if quotient is None or reshape is None or (reshape.op_type, quotient.op_type) != ("Reshape", "Div"):
            continue
        (source, divisor), output = quotient.input, mean.output[0]
        values = editor.array(divisor)
        if values is None or values.size != 1:
            continue
        editor.remove([mean])
        blocks = editor.add("Reshape", [source, reshape.input[1]], [f"{output}.undivided"])
        editor.add("ReduceMean", [blocks, *mean.input[1:]], [f"{output}.means"], keepdims=0)
        editor.add("Div", [f"{output}.means", divisor], [output])


def _enlarge_by_products(editor: GraphEditor, shapes: Shapes) -> None:
    """The sum of a map and of a smaller one that is enlarged, without turning channels to the front and back:

        transpose(flatten(transpose(a) + Resize(transpose(b)))) = flatten(a) + E flatten(b)

    where E (pixels, pixels of b) interpolates."""
    producers = editor.producers()

    def source(node: onnx.NodeProto | None, kind: str) -> onnx.NodeProto | None:
        """The node of this kind that a node reads, if there is one."""
        read = [producers[name] for name in (node.input if node else ()) if name in producers]
        return next((one for one in read if one.op_type == kind), None)

    for last in [node for node in editor.nodes if _permutes(node, [0, 2, 1])]:
        flatten = source(last, "Reshape")
        add = source(flatten, "Add")
        large, resize = source(add, "Transpose"), source(add, "Resize")
        small = source(resize, "Transpose")
        if flatten is None or large is None or resize is None or small is None:
            continue
        before, after = (shapes.get(node.output[0], [0] * 4)[2:] for node in (small, resize))
        channels, pixels = shapes.get(resize.output[0], [0] * 4)[1], math.prod(after)
        if (
            not (_permutes(large, [0, 3, 1, 2]) and _permutes(small, [0, 3, 1, 2]))
            or shapes.get(flatten.output[0], [])[1:] != [channels, pixels]
            or not 0 < math.prod(before) <= _MOST_PIXELS
        ):
            continue
        output = last.output[0]
        editor.remove([last])
        matrix = editor.constant(f"{output}.enlarge", _enlargement(resize, before, after))
        flat = editor.constant(f"{output}.flat", np.array([0, -1, channels]))
        grid = editor.constant(f"{output}.grid", np.array([0, *after, channels]))
        editor.add("Reshape", [small.input[0], flat], [f"{output}.small"])
        editor.add("MatMul", [matrix, f"{output}.small"], [f"{output}.product"])
        editor.add("Reshape", [f"{output}.product", grid], [f"{output}.enlarged"])
        # A sum of flat maps would become a SkipLayerNormalization with what follows, which is slow.
        editor.add("Add", [large.input[0], f"{output}.enlarged"], [f"{output}.sum"])
        editor.add("Reshape", [f"{output}.sum", flat], [output])


def _permutes(node: onnx.NodeProto, axes: list[int]) -> bool:
    return node.op_type == "Transpose" and list(node.attribute[0].ints) == axes


def _enlargement(resize: onnx.NodeProto, before: list[int], after: list[int]) -> npt.NDArray[np.float32]:
    """The matrix (pixels after, pixels before) of a `Resize` node: what it makes of each single pixel."""
    pixels = math.prod(before)
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"])
    node.attribute.extend(resize.attribute)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [4], [1, pixels, *after])
    graph = helper.make_graph([node], "resize", values[:1], values[1:], [sizes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    singles = np.eye(pixels, dtype=np.float32).reshape(1, pixels, *before)
    enlarged: list[Any] = list(ReferenceEvaluator(model).run(None, {"x": singles}))
    return np.ascontiguousarray(enlarged[0].reshape(pixels, -1).T, dtype=np.float32)


def _multiply_rows(editor: GraphEditor, shapes: Shapes, inputs: set[str]) -> None:
    """A product of a few queries (batch, beams, n) with a memory (batch, n, m) or, transposed, (batch, m, n)
    that differs by image. ONNX Runtime copies each matrix before it multiplies, unless there is only one
    query: so the beams become a further axis of the batch."""
    producers = editor.producers()
    for product in [node for node in editor.nodes if node.op_type == "MatMul"]:
        (query, memory), output = product.input, product.output[0]
        transpose = producers.get(memory)
        transposed = transpose is not None and _permutes(transpose, [0, 2, 1])
        source = transpose.input[0] if transpose is not None and transposed else memory
        if source not in inputs or (len(shapes.get(query, ())), len(shapes.get(source, ()))) != (3, 3):
            continue
        editor.remove([product])
        # Values are multiplied by rows, keys by columns.
        axis = editor.constant(
            "column.axis" if transposed else "row.axis", np.array([3 if transposed else 2])
        )
        memory_axis = editor.constant("memory.axis", np.array([1]))
        one = editor.add("Unsqueeze", [query, axis], [f"{output}.query"])
        each = editor.add("Unsqueeze", [source, memory_axis], [f"{output}.memory"])
        editor.add("MatMul", [each, one] if transposed else [one, each], [f"{output}.each"])
        editor.add("Squeeze", [f"{output}.each", axis], [output])
