"""Fewer nodes with the same results: merges products of an exported graph and replaces leftovers of the
exporter.

At batch 1 every node costs microseconds, and a decoder step consists mostly of small nodes.
Merged weights are written as expressions of the weights they are made of, which keep their names (a graph can
be read as a state dict, `captioner.training.weights.start`); ONNX Runtime computes the expressions once,
on loading.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import helper

from captioner.export.rewrites.editor import GraphEditor, Linear, attributes
from captioner.export.rewrites.slow_nodes import replace_slow_nodes

PIXELS = "pixels."
"""Prefix of the names of constants for reading pixels."""


def fuse(model: onnx.ModelProto) -> None:
    """Apply everything below, and then `slow_nodes`, to a graph, in place."""
    editor = GraphEditor(model)
    _restore_softplus(editor)
    _fold_pads(editor)
    _read_pixels(editor)
    _merge_sums(editor)
    _flatten_concats(editor)
    _merge_siblings(editor)
    _copy_columns(editor)
    editor.write()  # shapes are inferred from what is written
    replace_slow_nodes(model, editor)
    editor.write()


def _restore_softplus(editor: GraphEditor) -> None:
    """The exporter writes softplus(x) as six nodes, with a factor of 1 and a threshold; ONNX's own needs
    neither: Where(1 x > 20, x, Softplus(1 x) / 1)."""
    producers = editor.producers()
    for node in editor.of_kind("Where"):
        if node.input[2] not in producers:
            continue
        quotient = producers[node.input[2]]
        soft = producers.get(quotient.input[0])
        if (quotient.op_type, soft and soft.op_type) != ("Div", "Softplus"):
            continue
        assert soft is not None
        scaled = producers.get(soft.input[0])
        factors = [
            quotient.input[1],
            *(scaled.input if scaled is not None and scaled.op_type == "Mul" else ()),
        ]
        if node.input[1] in (soft.input[0], *factors) and all(
            name == node.input[1] or _is_one(editor, producers, name) for name in factors
        ):
            editor.remove([node])
            editor.add("Softplus", [node.input[1]], [node.output[0]])


def _is_one(editor: GraphEditor, producers: dict[str, onnx.NodeProto], name: str) -> bool:
    """Whether a value is the constant 1, perhaps behind a cast."""
    node = producers.get(name)
    if node is not None and node.op_type in ("Cast", "CastLike"):
        return _is_one(editor, producers, node.input[0])
    values = editor.array(name)
    return values is not None and values.size == 1 and float(values.reshape(-1)[0]) == 1.0


def _fold_pads(editor: GraphEditor) -> None:
    """Replace zero padding before a convolution with the convolution's own."""
    producers, uses = editor.producers(), editor.uses()
    for conv in editor.of_kind("Conv"):
        pad = producers.get(conv.input[0])
        if pad is None or pad.op_type != "Pad" or uses[conv.input[0]] != 1 or len(pad.input) > 2:
            continue
        widths = editor.array(pad.input[1])
        plain = attributes(pad).get("mode", b"constant") == b"constant"
        if widths is None or not plain or widths.reshape(2, -1)[:, :2].any():
            continue
        own = attributes(conv).get("pads", [0] * 4)
        kept = [a for a in conv.attribute if a.name != "pads"]
        total = [
            int(width) + before
            for width, before in zip(widths.reshape(2, -1)[:, 2:].ravel(), own, strict=True)
        ]
        conv.ClearField("attribute")
        conv.attribute.extend([*kept, helper.make_attribute("pads", total)])
        conv.input[0] = pad.input[0]


def _read_pixels(editor: GraphEditor) -> None:
    """Bytes minus an integer mean, divided by a power of two, both equal for all channels, are 8-bit numbers
    with a zero point and a scale: (x - 127) / 128. Dequantizing them gives exactly the same numbers in one
    pass instead of four."""
    producers = editor.producers()
    for quotient in editor.of_kind("Div"):
        chain = [quotient]
        for kind in ("Sub", "Cast", "Transpose"):
            node = producers.get(chain[-1].input[0])
            if node is None or node.op_type != kind:
                break
            chain.append(node)
        if len(chain) != 4 or chain[-1].input[0] != "pixels":
            continue
        means, deviations = (editor.array(node.input[1]) for node in (chain[1], quotient))
        if (
            means is None
            or deviations is None
            or np.unique(means).size != 1
            or np.unique(deviations).size != 1
        ):
            continue
        mean, deviation = float(means.flat[0]), float(deviations.flat[0])
        if mean != round(mean) or math.frexp(deviation)[0] != 0.5:
            continue
        scale = editor.constant(PIXELS + "scale", np.array(1 / deviation, dtype=np.float32))
        zero = editor.constant(PIXELS + "zero", np.array(mean, dtype=np.uint8))
        editor.remove([quotient])
        editor.add("DequantizeLinear", [chain[-1].output[0], scale, zero], [quotient.output[0]])


def _merge_sums(editor: GraphEditor) -> None:
    """U x + b + V y + c is one product of [x; y]: what an LSTM computes from its input and its state."""
    linears = {linear.output: linear for linear in editor.linears()}
    uses = editor.uses()
    for node in editor.of_kind("Add"):
        if not all(name in linears and uses[name] == 1 for name in node.input):
            continue
        first, second = (linears[name] for name in node.input)
        if first is second:
            continue
        output = node.output[0]
        editor.remove_linear(first)
        editor.remove_linear(second)
        editor.remove([node])
        editor.add("Concat", [first.source, second.source], [f"{output}.inputs"], axis=-1)
        editor.add("Concat", [first.weight, second.weight], [f"{output}.weight"], axis=0)
        editor.add("Add", [first.bias, second.bias], [f"{output}.bias"])
        editor.add("MatMul", [f"{output}.inputs", f"{output}.weight"], [f"{output}.product"])
        editor.add("Add", [f"{output}.product", f"{output}.bias"], [output])


def _flatten_concats(editor: GraphEditor) -> None:
    """Merge nested concatenations along the last axis."""
    producers, uses = editor.producers(), editor.uses()
    for node in editor.of_kind("Concat"):
        if node.attribute[0].i != -1:
            continue
        inputs: list[str] = []
        for name in node.input:
            inner = producers.get(name)
            nested = inner is not None and inner.op_type == "Concat" and uses[name] == 1
            inputs += (
                inner.input if inner is not None and nested and inner.attribute[0].i in (-1, 2) else [name]
            )
        node.ClearField("input")
        node.input.extend(inputs)


def _merge_siblings(editor: GraphEditor) -> None:
    """Merge products of the same value into one product, and split its result."""
    families: dict[str, list[Linear]] = {}
    for linear in editor.linears():
        families.setdefault(linear.source, []).append(linear)
    for source, family in families.items():
        if len(family) < 2:
            continue
        name = f"{family[0].output}.siblings"
        for linear in family:
            editor.remove_linear(linear)
        editor.add("Concat", [linear.weight for linear in family], [f"{name}.weight"], axis=1)
        editor.add("Concat", [linear.bias for linear in family], [f"{name}.bias"], axis=0)
        editor.add("MatMul", [source, f"{name}.weight"], [f"{name}.product"])
        editor.add("Add", [f"{name}.product", f"{name}.bias"], [name])
        sizes = []
        for number, linear in enumerate(family):
            editor.add("Shape", [linear.bias], [f"{name}.size.{number}"])
            sizes.append(f"{name}.size.{number}")
        editor.add("Concat", sizes, [f"{name}.sizes"], axis=0)
        editor.add("Split", [name, f"{name}.sizes"], [linear.output for linear in family], axis=-1)


def _copy_columns(editor: GraphEditor) -> None:
    """A product with zeros and ones adds up the values that each column names. Columns with a single one only
    copy a value; where they are most, only the others are multiplied:
    x M = concatenation(x, x M[:, others])[places]."""
    for product in editor.of_kind("MatMul"):
        matrix = editor.array(product.input[1])
        if matrix is None or matrix.ndim != 2 or not np.isin(matrix, (0, 1)).all():
            continue
        single = np.count_nonzero(matrix, axis=0) == 1
        if 2 * np.count_nonzero(single) <= len(single):
            continue
        [others] = np.nonzero(~single)
        places = matrix.argmax(axis=0)
        places[others] = len(matrix) + np.arange(len(others))
        (source, weight), output = product.input, product.output[0]
        editor.remove([product])
        editor.constant(f"{output}.others", others)
        editor.constant(f"{output}.places", places)
        editor.add("Gather", [weight, f"{output}.others"], [f"{output}.weight"], axis=1)
        editor.add("MatMul", [source, f"{output}.weight"], [f"{output}.sums"])
        editor.add("Concat", [source, f"{output}.sums"], [f"{output}.values"], axis=-1)
        editor.add("Gather", [f"{output}.values", f"{output}.places"], [output], axis=-1)
