"""Fewer nodes with the same results: merges products of an exported graph and replaces leftovers of the
exporter.

At batch 1 every node costs microseconds, and a decoder step consists mostly of small nodes.
Merged weights are written as expressions of the weights they are made of, which keep their names (a graph can
be read as a state dict, `captioner.training.start`); ONNX Runtime computes the expressions once, on loading.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

PIXELS = "pixels."
"""Prefix of the names of constants for reading pixels."""


@dataclass(frozen=True, slots=True)
class _Linear:
    """`output` = `source` @ `weight` + `bias`, as two nodes; weight and bias are constant."""

    source: str
    weight: str
    bias: str
    output: str


class GraphEditor:
    """The nodes of a graph, to be replaced in any order; `write` sorts them again."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        self.nodes = list(model.graph.node)
        self.constants = {tensor.name for tensor in model.graph.initializer}
        for node in self.nodes:
            if all(name in self.constants for name in node.input):
                self.constants.update(node.output)

    def producers(self) -> dict[str, onnx.NodeProto]:
        """The node that each value comes from."""
        return {name: node for node in self.nodes for name in node.output}

    def uses(self) -> Counter[str]:
        """The number of nodes and graph outputs that read each value."""
        read: Iterable[str] = (name for node in self.nodes for name in node.input)
        return Counter([*read, *(value.name for value in self._graph.output)])

    def array(self, name: str) -> npt.NDArray[Any] | None:
        """An initializer or a constant; None for anything else."""
        for tensor in self._graph.initializer:
            if tensor.name == name:
                return numpy_helper.to_array(tensor)
        for node in self.nodes:
            if node.op_type == "Constant" and node.output[0] == name:
                [attribute] = node.attribute
                if attribute.HasField("t"):
                    return numpy_helper.to_array(attribute.t)
                return np.array(helper.get_attribute_value(attribute))
        return None

    def constant(self, name: str, values: npt.NDArray[Any]) -> str:
        """Add an initializer unless the name exists; returns the name."""
        if name not in self.constants:
            self._graph.initializer.append(numpy_helper.from_array(values, name))
            self.constants.add(name)
        return name

    def add(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> str:
        """Add a node, named after its first output, which is returned."""
        self.nodes.append(helper.make_node(kind, inputs, outputs, f"{kind}:{outputs[0]}", **attributes))
        if all(name in self.constants for name in inputs):
            self.constants.update(outputs)
        return outputs[0]

    def remove(self, nodes: Iterable[onnx.NodeProto]) -> None:
        gone = {id(node) for node in nodes}
        self.nodes = [node for node in self.nodes if id(node) not in gone]

    def linears(self) -> list[_Linear]:
        """Every product with a constant matrix whose only use is the addition of a constant vector."""
        producers, uses = self.producers(), self.uses()
        found = []
        for node in self.nodes:
            if node.op_type != "Add":
                continue
            for value, bias in (tuple(node.input), tuple(node.input)[::-1]):
                product = producers.get(value)
                if (
                    product is not None
                    and product.op_type == "MatMul"
                    and uses[value] == 1
                    and bias in self.constants
                    and product.input[1] in self.constants
                    and product.input[0] not in self.constants
                ):
                    found.append(_Linear(product.input[0], product.input[1], bias, node.output[0]))
        return found

    def replace(self, linear: _Linear) -> None:
        """Remove the two nodes of a linear layer."""
        producers = self.producers()
        last = producers[linear.output]
        self.remove([last, *(producers[name] for name in last.input if name not in self.constants)])

    def write(self) -> None:
        """Put the nodes into the graph, in an order in which they can be computed, without unused ones."""
        known = (
            {tensor.name for tensor in self._graph.initializer} | {v.name for v in self._graph.input} | {""}
        )
        ordered: list[onnx.NodeProto] = []
        left = self.nodes
        while left:
            ready = [node for node in left if known.issuperset(node.input)]
            assert ready, "the graph has a cycle, or a value that nothing computes"
            for node in ready:
                known.update(node.output)
            ordered += ready
            done = {id(node) for node in ready}
            left = [node for node in left if id(node) not in done]
        wanted = {value.name for value in self._graph.output}
        kept = []
        for node in reversed(ordered):
            if wanted.intersection(node.output):
                wanted.update(node.input)
                kept.append(node)
        del self._graph.node[:]
        self._graph.node.extend(kept[::-1])
        self.nodes = kept[::-1]
        used = [tensor for tensor in self._graph.initializer if tensor.name in wanted]
        del self._graph.initializer[:]
        self._graph.initializer.extend(used)
        del self._graph.value_info[:]


def fuse(model: onnx.ModelProto) -> None:
    """Apply everything below to a graph, in place."""
    editor = GraphEditor(model)
    _restore_softplus(editor)
    _fold_pads(editor)
    _read_pixels(editor)
    _merge_sums(editor)
    _flatten_concats(editor)
    _merge_siblings(editor)
    _copy_columns(editor)
    editor.write()
    replace_slow_nodes(model, editor)
    editor.write()


def replace_slow_nodes(model: onnx.ModelProto, editor: GraphEditor) -> None:
    """Replace nodes that ONNX Runtime computes slowly on the CPU by others with the same results."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    shapes = {
        value.name: [axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*inferred.graph.value_info, *inferred.graph.output)
    }
    _gather_rows(editor, shapes)
    _average_blocks(editor, shapes)


def _gather_rows(editor: GraphEditor, shapes: Mapping[str, list[int]]) -> None:
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


def _average_blocks(editor: GraphEditor, shapes: Mapping[str, list[int]]) -> None:
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


def _restore_softplus(editor: GraphEditor) -> None:
    """The exporter writes softplus(x) as six nodes, with a factor of 1 and a threshold; ONNX's own needs
    neither: Where(1 x > 20, x, Softplus(1 x) / 1)."""
    producers = editor.producers()
    for node in list(editor.nodes):
        if node.op_type != "Where" or node.input[2] not in producers:
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
    for conv in editor.nodes:
        pad = producers.get(conv.input[0]) if conv.op_type == "Conv" else None
        if pad is None or pad.op_type != "Pad" or uses[conv.input[0]] != 1 or len(pad.input) > 2:
            continue
        widths = editor.array(pad.input[1])
        plain = next((a.s == b"constant" for a in pad.attribute if a.name == "mode"), True)
        if widths is None or not plain or widths.reshape(2, -1)[:, :2].any():
            continue
        own = next((list(a.ints) for a in conv.attribute if a.name == "pads"), [0] * 4)
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
    for quotient in [node for node in editor.nodes if node.op_type == "Div"]:
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
    for node in list(editor.nodes):
        if node.op_type != "Add" or not all(name in linears and uses[name] == 1 for name in node.input):
            continue
        first, second = (linears[name] for name in node.input)
        if first is second:
            continue
        output = node.output[0]
        editor.replace(first)
        editor.replace(second)
        editor.remove([node])
        editor.add("Concat", [first.source, second.source], [f"{output}.inputs"], axis=-1)
        editor.add("Concat", [first.weight, second.weight], [f"{output}.weight"], axis=0)
        editor.add("Add", [first.bias, second.bias], [f"{output}.bias"])
        editor.add("MatMul", [f"{output}.inputs", f"{output}.weight"], [f"{output}.product"])
        editor.add("Add", [f"{output}.product", f"{output}.bias"], [output])


def _flatten_concats(editor: GraphEditor) -> None:
    """Merge nested concatenations along the last axis."""
    producers, uses = editor.producers(), editor.uses()
    for node in editor.nodes:
        if node.op_type != "Concat" or node.attribute[0].i != -1:
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
    families: dict[str, list[_Linear]] = {}
    for linear in editor.linears():
        families.setdefault(linear.source, []).append(linear)
    for source, family in families.items():
        if len(family) < 2:
            continue
        name = f"{family[0].output}.siblings"
        for linear in family:
            editor.replace(linear)
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
    for product in [node for node in editor.nodes if node.op_type == "MatMul"]:
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
