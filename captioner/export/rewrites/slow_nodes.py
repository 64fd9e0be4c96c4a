"""Replaces nodes that ONNX Runtime computes slowly on the CPU by others with the same results.

The benefit of each was measured: docs/research/experiments/classes.md, "Faster INT8
graphs", and embedded.md, "Faster nodes in INT8".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch.nn import functional

from captioner.export.rewrites.editor import GraphEditor, attributes

Shapes = Mapping[str, list[int]]
"""The shape of each value; 0 for an axis that varies or is unknown, [] for an unknown shape."""
_MOST_PIXELS = 64
"""The largest small map, in pixels, for which a product is faster than `Resize`."""


def replace_slow_nodes(model: onnx.ModelProto, editor: GraphEditor, only_cpu: bool = False) -> None:
    """Apply the replacements below to `editor`, which edits `model`. Calling it again changes nothing.
    `only_cpu`: the graph never runs on a GPU, where `_multiply_rows` may be slower."""
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
    for node in editor.of_kind("Gather"):
        (source, places), output = node.input, node.output[0]
        axis = attributes(node).get("axis", 0)
        ranks = len(shapes.get(source, ())), len(shapes.get(output, ()))
        if places not in editor.constants or ranks != (3, 3) or axis not in (2, -1):
            continue
        editor.remove([node])
        editor.add("Transpose", [source], [f"{output}.rows"], perm=[0, 2, 1])
        editor.add("Gather", [f"{output}.rows", places], [f"{output}.gathered"], axis=1)
        editor.add("Transpose", [f"{output}.gathered"], [output], perm=[0, 2, 1])


def _average_blocks(editor: GraphEditor, shapes: Shapes) -> None:
    """Average pooling without overlap is a mean over two axes of a reshaped value."""
    for pool in editor.of_kind("AveragePool"):
        given = attributes(pool)
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
    for mean in editor.of_kind("ReduceMean"):
        reshape = producers.get(mean.input[0])
        quotient = producers.get(reshape.input[0]) if reshape is not None else None
        if quotient is None or reshape is None or (reshape.op_type, quotient.op_type) != ("Reshape", "Div"):
            continue
        (source, divisor), output = quotient.input, mean.output[0]
        values = editor.array(divisor)
        if values is None or values.ndim:
            continue
        editor.remove([mean])
        mean.input[0] = editor.add("Reshape", [source, reshape.input[1]], [f"{output}.undivided"])
        mean.output[0] = f"{output}.means"
        editor.nodes.append(mean)
        editor.add("Div", [f"{output}.means", divisor], [output])


def _enlarge_by_products(editor: GraphEditor, shapes: Shapes) -> None:
    """The sum of a map and of one smaller one that is enlarged, without moving the channels forward and back:

        transpose(flatten(transpose(a) + Resize(transpose(b)))) = flatten(a) + E flatten(b)

    where E (pixels, pixels of b) interpolates. Sums of three maps stay as they are."""
    producers = editor.producers()

    def read_by(node: onnx.NodeProto | None, kind: str) -> onnx.NodeProto | None:
        """The node of this kind whose output a node reads, if there is one."""
        read = [producers[name] for name in (node.input if node else ()) if name in producers]
        return next((one for one in read if one.op_type == kind), None)

    for last in [node for node in editor.nodes if _permutes(node, [0, 2, 1])]:
        flatten = read_by(last, "Reshape")
        add = read_by(flatten, "Add")
        large, resize = read_by(add, "Transpose"), read_by(add, "Resize")
        small = read_by(resize, "Transpose")
        if flatten is None or large is None or resize is None or small is None:
            continue
        reduced, enlarged = (shapes.get(node.output[0], []) for node in (small, resize))
        if len(reduced) != 4 or len(enlarged) != 4:
            continue
        channels, before, after = enlarged[1], reduced[2:], enlarged[2:]
        if (
            not _interpolates(resize)
            or not (_permutes(large, [0, 3, 1, 2]) and _permutes(small, [0, 3, 1, 2]))
            or shapes.get(flatten.output[0], [])[1:] != [channels, math.prod(after)]
            or not 0 < math.prod(before) <= _MOST_PIXELS
        ):
            continue
        output = last.output[0]
        editor.remove([last])
        matrix = editor.constant(f"{output}.enlarge", _enlargement(before, after))
        flat = editor.constant(f"{output}.flat", np.array([0, -1, channels]))
        grid = editor.constant(f"{output}.grid", np.array([0, *after, channels]))
        editor.add("Reshape", [small.input[0], flat], [f"{output}.small"])
        editor.add("MatMul", [matrix, f"{output}.small"], [f"{output}.product"])
        editor.add("Reshape", [f"{output}.product", grid], [f"{output}.enlarged"])
        # A sum of flat maps would become a SkipLayerNormalization with what follows, which is slow.
        editor.add("Add", [large.input[0], f"{output}.enlarged"], [f"{output}.sum"])
        editor.add("Reshape", [f"{output}.sum", flat], [output])


def _permutes(node: onnx.NodeProto, axes: list[int]) -> bool:
    return node.op_type == "Transpose" and attributes(node).get("perm") == axes


def _interpolates(resize: onnx.NodeProto) -> bool:
    """Whether a `Resize` is PyTorch's bilinear interpolation with `align_corners=False`."""
    given = attributes(resize)
    kind = given.get("mode"), given.get("coordinate_transformation_mode", b"half_pixel")
    return kind == (b"linear", b"half_pixel") and not given.get("antialias") and "axes" not in given


def _enlargement(before: list[int], after: list[int]) -> npt.NDArray[np.float32]:
    """The matrix (pixels after, pixels before) of a bilinear interpolation: what becomes of each pixel."""
    pixels = math.prod(before)
    singles = torch.eye(pixels).reshape(1, pixels, *before)
    enlarged = functional.interpolate(singles, size=after, mode="bilinear", align_corners=False)
    return np.ascontiguousarray(enlarged.reshape(pixels, -1).T.numpy())


def _multiply_rows(editor: GraphEditor, shapes: Shapes, inputs: set[str]) -> None:
    """A product of a few queries (batch, beams, n) with a memory (batch, n, m) or, transposed, (batch, m, n)
    of each image. ONNX Runtime copies each matrix before it multiplies, unless there is only one query: so
    the beams become a further axis of the batch. Attentions with several heads stay as they are."""
    producers = editor.producers()
    for product in editor.of_kind("MatMul"):
        (query, memory), output = product.input, product.output[0]
        transpose = producers.get(memory)
        transposed = transpose is not None and _permutes(transpose, [0, 2, 1])
        source = transpose.input[0] if transpose is not None and transposed else memory
        if source not in inputs or (len(shapes.get(query, ())), len(shapes.get(source, ()))) != (3, 3):
            continue
        editor.remove([product])
        # Values: a row times a matrix. Keys: a matrix times a column, so that none is transposed.
        axis = editor.constant(
            "column.axis" if transposed else "row.axis", np.array([3 if transposed else 2])
        )
        memory_axis = editor.constant("memory.axis", np.array([1]))
        queries = editor.add("Unsqueeze", [query, axis], [f"{output}.query"])
        memories = editor.add("Unsqueeze", [source, memory_axis], [f"{output}.memory"])
        both = [memories, queries] if transposed else [queries, memories]
        editor.add("MatMul", both, [f"{output}.each"])
        editor.add("Squeeze", [f"{output}.each", axis], [output])
