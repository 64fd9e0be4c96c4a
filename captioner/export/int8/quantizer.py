"""INT8 versions of the float32 graphs: the same weights, rounded when they are loaded.

Products and convolutions read and write 8-bit numbers, between `QuantizeLinear` and `DequantizeLinear` nodes
that ONNX Runtime turns into integer arithmetic. Activations have fixed ranges, measured on photos, so
that the result for an image does not depend on the others in its batch; weights have a scale for each
output channel. A quantised graph holds no trained weights: these are references into the file of the float
graph, rounded by nodes that ONNX Runtime computes once, on loading. Both precisions of a bundle
together are little larger than one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from captioner.export.int8.ranges import Array, Range, affine
from captioner.export.int8.stored_bytes import stored_bytes
from captioner.export.rewrites.editor import GraphEditor, attributes
from captioner.export.rewrites.folding import LEAST_TERMS, SMALLEST, fold_batch_norms, split_gemms
from captioner.export.rewrites.rows import scale_gated_rows
from captioner.export.rewrites.slow_nodes import replace_slow_nodes
from captioner.export.shared_weights import refer_to, session

_CLIPS = ("Clip", "Relu")


class Quantizer:
    """A float graph, to measure its activations and to convert to INT8. In a graph with convolutions,
    those are rounded, with the nodes between them and the products of features, except for an exact start
    (`_exact_start`); in other graphs, all products with large constant matrices.
    """

    def __init__(self, graph: bytes) -> None:
        self._source = graph
        self._model = onnx.load_from_string(graph)
        self._editor = GraphEditor(self._model)
        # An older float graph may still have nodes that newer ones are exported without.
        replace_slow_nodes(self._model, self._editor, only_cpu=True)
        fold_batch_norms(self._editor)
        split_gemms(self._editor)
        scale_gated_rows(self._editor)
        self._editor.write()
        self._values = _computed(self._model)
        self._producers = self._editor.producers()
        exact = _exact_start(self._editor.nodes)
        self._nodes = [
            node for node in self._editor.nodes if self._is_rounded(node) and node.output[0] not in exact
        ]
        self.activations = self._find_activations()
        """Values that are rounded to 8 bits."""

    def observed(self, values: Sequence[str] = ()) -> onnxruntime.InferenceSession:
        """The float graph with `values`, by default all `activations`, as outputs besides its own."""
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        own = {value.name for value in model.graph.output}
        model.graph.output.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in values or self.activations
            if name not in own
        )
        return session(model.SerializeToString())

    def quantize(self, ranges: Mapping[str, Range], source: str) -> bytes:
        """Convert the graph to INT8; call it once. `ranges` of the activations as measured on photos;
        `source` is the name of the file with the float graph, in the same folder."""
        scales = {}
        everywhere = any(node.op_type == "Conv" for node in self._nodes)
        before = list(self._editor.nodes)
        sources = {node.output[0]: node.input[0] for node in self._nodes}
        for name in self.activations:
            scale, zero = affine(*ranges[name])
            rounded = self._round_activation(name, scale, zero)
            scales[rounded] = scale
            # A value that is rounded for one reader is rounded for all; else the float value would be
            # computed too.
            for node in before if everywhere else self._nodes:
                for index, value in enumerate(node.input):
                    if value == name and self._producers.get(name) is not node:
                        node.input[index] = rounded
        for node in self._nodes:
            if node.op_type == "Add":
                continue
            if node.input[0] not in scales:  # bytes, which need no rounding
                scales[node.input[0]] = self._pixel_scale
            if node.op_type == "MatMul" and _is_near_identity(self._values[node.input[1]]):
                self._take_identity_out(node, sources[node.output[0]])
            self._round_constants(node, scales[node.input[0]])
        self._editor.write()
        onnx.checker.check_model(self._model)
        refer_to(self._model, self._source, source)
        return bytes(self._model.SerializeToString(deterministic=True))

    @property
    def _pixel_scale(self) -> np.float32:
        scale = self._editor.array("pixels.scale")
        assert scale is not None
        return np.float32(scale)

    def _is_rounded(self, node: onnx.NodeProto) -> bool:
        if node.op_type == "Conv":
            return True
        if node.op_type == "MatMul":
            weight = self._values.get(node.input[1])
            if weight is None or weight.ndim != 2 or weight.size < SMALLEST:
                return False
            return not self._editor.of_kind("Conv") or self._gains(node.input[0], weight)
        return node.op_type == "Add" and all(self._comes_from_conv(name) for name in node.input)

    def _gains(self, source: str, weight: Array) -> bool:
        """Whether a product of an image's features gains from INT8. Probabilities span more than 8 bits."""
        node = self._producers.get(source)
        return len(weight) >= LEAST_TERMS and (node is None or node.op_type != "Softmax")

    def _comes_from_conv(self, name: str) -> bool:
        """Whether a value comes from convolutions, by additions and clipping only."""
        node = self._producers.get(name)
        if node is None:
            return False
        if node.op_type in _CLIPS:
            return self._comes_from_conv(node.input[0])
        if node.op_type == "Add":
            return all(self._comes_from_conv(value) for value in node.input)
        return node.op_type == "Conv"

    def _find_activations(self) -> list[str]:
        found: dict[str, None] = {}
        for node in self._nodes:
            reads = node.input if node.op_type == "Add" else node.input[:1]
            found.update(dict.fromkeys(reads))
            if node.op_type != "MatMul":
                found[self._clipped(node.output[0])] = None
        read_as_bytes = [
            name
            for name in found
            if (source := self._producers.get(name)) and source.op_type == "DequantizeLinear"
        ]
        return [name for name in found if name not in read_as_bytes]

    def _clipped(self, name: str) -> str:
        """The output of the only reader of a value if this reader clips it, else the value."""
        readers = [node for node in self._editor.nodes if name in node.input]
        if len(readers) == 1 and readers[0].op_type in _CLIPS:
            return str(readers[0].output[0])
        return name

    def _round_activation(self, name: str, scale: np.float32, zero: np.uint8) -> str:
        """Round a value; returns the rounded one. Where it was clipped, rounding to its range does that."""
        clip = self._producers.get(name)
        clipped = clip is not None and clip.op_type in _CLIPS and zero == 0
        value = clip.input[0] if clip is not None and clipped else name
        how = self._constants(name, scale=np.array(scale), zero=np.array(zero))
        self._editor.add("QuantizeLinear", [value, *how], [f"{name}.rounded"])
        return self._editor.add("DequantizeLinear", [f"{name}.rounded", *how], [f"{name}.read"])

    def _take_identity_out(self, node: onnx.NodeProto, source: str) -> None:
        """x W becomes x (W - I) + x, in which only the small numbers W - I are rounded. If only the first
        columns of W are near the identity, and a `Split` separates their results, x is added to those;
        without such a `Split`, nothing changes."""
        name = node.input[1]
        values = self._values[name]
        rows, columns = values.shape
        giver = node if rows == columns else self._split_after(node, rows)
        if giver is None:
            return
        self._editor.add("EyeLike", [name], [f"{name}.identity"])
        node.input[1] = self._editor.add("Sub", [name, f"{name}.identity"], [f"{name}.rest"])
        self._values[node.input[1]] = values - np.eye(rows, columns, dtype=np.float32)
        output = giver.output[0]
        giver.output[0] = f"{output}.rest"
        self._editor.add("Add", [f"{output}.rest", source], [output])

    def _split_after(self, product: onnx.NodeProto, size: int) -> onnx.NodeProto | None:
        """The `Split` whose first output is the first `size` columns of a product to which a bias was added;
        None if there is none."""
        uses, name, reader = self._editor.uses(), product.output[0], product
        for kind in ("Add", "Split"):
            readers = [node for node in self._editor.nodes if name in node.input]
            if uses[name] != 1 or len(readers) != 1 or readers[0].op_type != kind:
                return None
            [reader] = readers
            name = reader.output[0]
        sizes = self._values.get(reader.input[1]) if len(reader.input) > 1 else None
        last = attributes(reader).get("axis") == -1
        return reader if last and sizes is not None and sizes[0] == size else None

    def _round_constants(self, node: onnx.NodeProto, input_scale: np.float32) -> None:
        """Round the weights of a node, with a scale for each output channel, and its bias, if it has one, to
        32 bits with the scale of the products."""
        name, axis = node.input[1], 0 if node.op_type == "Conv" else 1
        if node.op_type == "MatMul" and (held := stored_bytes(self._editor, self._producers, name)):
            node.input[1] = f"{name}.read"
            if node.input[1] not in self._editor.constants:
                self._editor.add("DequantizeLinear", [*held], [node.input[1]], axis=1)
            return
        values = self._values[name]
        others = tuple(number for number in range(values.ndim) if number != axis)
        scale = np.abs(values).max(axis=others) / 127
        bias = self._values[node.input[2]].astype(np.float64) if len(node.input) > 2 else np.zeros(1)
        # The scale of a channel with hardly any weights must still be large enough for its bias.
        scale = np.maximum(scale, np.abs(bias) / 2**30 / input_scale).clip(1e-12).astype(np.float32)
        read = f"{name}.read"
        if read not in self._editor.constants:
            zeros = np.zeros(len(scale), dtype=np.int8)
            how = self._constants(name, scale=scale, zero=zeros)
            self._editor.add("QuantizeLinear", [name, *how], [f"{name}.rounded"], axis=axis)
            self._editor.add("DequantizeLinear", [f"{name}.rounded", *how], [read], axis=axis)
        node.input[1] = read
        if len(node.input) > 2:
            name = f"{node.output[0]}.bias"
            total = input_scale * scale
            inputs = self._constants(
                name,
                rounded=np.round(bias / total).astype(np.int32),
                scale=total,
                zero=np.zeros(len(scale), dtype=np.int32),
            )
            node.input[2] = self._editor.add("DequantizeLinear", inputs, [f"{name}.read"], axis=0)

    def _constants(self, name: str, **values: npt.NDArray[Any]) -> list[str]:
        return [self._editor.constant(f"{name}.{kind}", value) for kind, value in values.items()]


def _is_near_identity(weight: Array) -> bool:
    """Whether a matrix, or its first columns, are nearly the identity: its ones would set the scale."""
    rest = weight - np.eye(*weight.shape, dtype=np.float32)
    return weight.shape[0] <= weight.shape[1] and 2 * np.abs(rest).max() < np.abs(weight).max()


def _exact_start(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Outputs of the convolutions that read the photo, and of depthwise ones right behind them, as in
    MobileNets and EfficientNets, if there is such a one, or if they cut the photo into patches.

    They stay in float32. Edge filters of so few weights lose more to rounding than all later layers
    together, and with so few channels integer arithmetic is no faster."""
    exact: set[str] = set()
    convolved: set[str] = set()
    start: dict[str, str] = {}
    for node in nodes:
        source, output = next(iter(node.input), ""), next(iter(node.output), "")
        given = attributes(node)
        if node.op_type == "Conv" and source in start and given.get("group", 1) > 1:
            exact |= {start[source], output}
        elif node.op_type == "Conv" and convolved.isdisjoint(node.input):
            start[output] = output
            exact |= {output} if given.get("kernel_shape") == given.get("strides") else set()
        elif node.op_type in _CLIPS and source in start:
            start[output] = start[source]
        if node.op_type == "Conv" or not convolved.isdisjoint(node.input):
            convolved.update(node.output)
    return exact


def _computed(model: onnx.ModelProto) -> dict[str, npt.NDArray[Any]]:
    """Every constant that a convolution, a product or a split reads, computed."""
    editor = GraphEditor(model)
    wanted = {
        name
        for node in editor.nodes
        if node.op_type in ("Conv", "MatMul", "Split")
        for name in node.input
        if name in editor.constants
    }
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    computed = sorted(wanted - set(held))
    part = onnx.ModelProto()
    part.CopyFrom(model)
    del part.graph.output[:], part.graph.input[:], part.graph.node[:]
    part.graph.node.extend(node for node in editor.nodes if editor.constants.issuperset(node.output))
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed)
    found: list[Any] = session(part.SerializeToString()).run(computed, {}) if computed else []
    held.update(zip(computed, found, strict=True))
    return {name: held[name] for name in wanted}
