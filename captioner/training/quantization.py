"""INT8 versions of the float32 graphs: the same weights, rounded when they are loaded.

Products and convolutions read and write 8-bit numbers, between `QuantizeLinear` and `DequantizeLinear` nodes
that ONNX Runtime turns into integer arithmetic. Activations have fixed ranges, measured on photos, so
that the result for an image does not depend on the others in its batch; weights have a scale for each
output channel. A quantised graph holds no trained weights: these are references into the file of the float
graph, rounded by nodes that ONNX Runtime computes once, on loading. Both precisions of a bundle
together are little larger than one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from captioner.training.graph_editor import GraphEditor
from captioner.training.slow_nodes import replace_slow_nodes

Array = npt.NDArray[np.float32]
Range = tuple[float, float]
SMALLEST = 4096
"""Smaller weights (by number of elements) and tensors (by bytes) are not quantized."""
_LEAST_TERMS = 96
"""Products of an image's features that sum fewer terms hardly get faster in INT8."""
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
        _fold_batch_norms(self._editor)
        _split_gemms(self._editor)
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
        self._refer_to(source)
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
            convolves = any(other.op_type == "Conv" for other in self._editor.nodes)
            return not convolves or self._gains(node.input[0], weight)
        return node.op_type == "Add" and all(self._comes_from_conv(name) for name in node.input)

    def _gains(self, source: str, weight: Array) -> bool:
        """Whether a product of an image's features gains from INT8. Probabilities span more than 8 bits."""
        node = self._producers.get(source)
        return len(weight) >= _LEAST_TERMS and (node is None or node.op_type != "Softmax")

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
        last = any(a.name == "axis" and a.i == -1 for a in reader.attribute)
        return reader if last and sizes is not None and sizes[0] == size else None

    def _round_constants(self, node: onnx.NodeProto, input_scale: np.float32) -> None:
        """Round the weights of a node, with a scale for each output channel, and its bias, if it has one, to
        32 bits with the scale of the products."""
        name, axis = node.input[1], 0 if node.op_type == "Conv" else 1
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

    def _refer_to(self, source: str) -> None:
        """Replace tensors that the float graph holds by references into its file."""
        for tensor in self._model.graph.initializer:
            content = tensor.raw_data
            offset = self._source.find(content) if len(content) >= SMALLEST else -1
            if offset < 0:
                continue
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", source), ("offset", offset), ("length", len(content))):
                tensor.external_data.add(key=key, value=str(value))


def _is_near_identity(weight: Array) -> bool:
    """Whether a matrix, or its first columns, are nearly the identity: its ones would set the scale."""
    rest = weight - np.eye(*weight.shape, dtype=np.float32)
    return weight.shape[0] <= weight.shape[1] and 2 * np.abs(rest).max() < np.abs(weight).max()


def _exact_start(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Outputs of the first two convolutions if the second is depthwise, as in MobileNets and EfficientNets.

    They stay in float32. Edge filters of so few weights lose more to rounding than all later layers
    together, and with so few channels integer arithmetic is no faster."""
    first = list(itertools.islice((node for node in nodes if node.op_type == "Conv"), 2))
    depthwise = len(first) == 2 and any(a.name == "group" and a.i > 1 for a in first[1].attribute)
    return {node.output[0] for node in first} if depthwise else set()


def session(graph: bytes, files: Mapping[str, bytes] | None = None) -> onnxruntime.InferenceSession:
    """A session on the CPU; `files` are those that the graph refers to."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if files:
        options.add_external_initializers_from_files_in_memory(
            list(files), list(files.values()), [len(content) for content in files.values()]
        )
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def widen(ranges: dict[str, Range], found: Iterable[tuple[str, Array]], share: float = 0.0) -> None:
    """Extend ranges by the values of a batch of photos, (photos, …), without the `share` at either end of
    each photo's values."""
    for name, value in found:
        flat = value.reshape(len(value), -1)
        if share:
            low, high = np.quantile(flat[:, :: max(1, flat.shape[1] // 20_000)], [share, 1 - share], axis=1)
        else:
            low, high = flat.min(axis=1), flat.max(axis=1)
        before = ranges.get(name, (0.0, 0.0))
        ranges[name] = (min(before[0], float(low.min())), max(before[1], float(high.max())))


def affine(low: float, high: float) -> tuple[np.float32, np.uint8]:
    """The scale and zero point of 8 bits from `low` to `high`, with zero between them."""
    scale = max((high - low) / 255, 1e-8)
    return np.float32(scale), np.uint8(np.clip(round(-low / scale), 0, 255))


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


def _split_gemms(editor: GraphEditor) -> None:
    """Replace each `Gemm` that gains from INT8, a product of one vector per image, by `MatMul` and `Add` with
    a further axis of length 1. With two axes, ONNX Runtime would join them to a `Gemm` again, which it
    computes in float32."""
    producers = editor.producers()
    rows: dict[str, str] = {}
    for gemm in [node for node in editor.nodes if node.op_type == "Gemm" and len(node.input) == 3]:
        given = {a.name: helper.get_attribute_value(a) for a in gemm.attribute}
        (source, weight, bias), output = gemm.input, gemm.output[0]
        matrix, added = (_stored(editor, producers, name) for name in (weight, bias))
        transposed = given.get("transB", 0)
        if (
            (given.get("alpha", 1.0), given.get("beta", 1.0), given.get("transA", 0)) != (1.0, 1.0, 0)
            or matrix is None
            or added is None
            or added.ndim != 1
            or matrix.size < SMALLEST
            or matrix.shape[1 if transposed else 0] < _LEAST_TERMS
        ):
            continue
        editor.remove([gemm])
        editor.constant("image.axis", np.array([1]))
        if source not in rows:
            rows[source] = editor.add("Unsqueeze", [source, "image.axis"], [f"{source}.row"])
        if transposed:
            weight = editor.add("Transpose", [weight], [f"{output}.weight"], perm=[1, 0])
        editor.add("MatMul", [rows[source], weight], [f"{output}.product"])
        editor.add("Add", [f"{output}.product", bias], [f"{output}.sum"])
        editor.add("Squeeze", [f"{output}.sum", "image.axis"], [output])


def _stored(
    editor: GraphEditor, producers: Mapping[str, onnx.NodeProto], name: str
) -> npt.NDArray[Any] | None:
    """A constant that is stored, perhaps in half precision behind a `Cast`; None for anything else."""
    node = producers.get(name)
    return editor.array(node.input[0] if node is not None and node.op_type == "Cast" else name)


def _fold_batch_norms(editor: GraphEditor) -> None:
    """Fold batch normalisation into the convolution before it; the new weights are an expression of those
    in the graph."""
    uses, producers = editor.uses(), editor.producers()

    def values(name: str) -> Array:
        held = _stored(editor, producers, name)
        assert held is not None
        return held.astype(np.float32)

    for norm in [node for node in editor.nodes if node.op_type == "BatchNormalization"]:
        conv = producers.get(norm.input[0])
        if conv is None or conv.op_type != "Conv" or uses[norm.input[0]] != 1:
            continue
        gain, shift, mean, variance = (values(name) for name in norm.input[1:])
        epsilon = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
        factor = (gain / np.sqrt(variance + epsilon)).astype(np.float32)
        before = values(conv.input[2]) if len(conv.input) > 2 else np.zeros_like(mean)
        name = norm.output[0]
        editor.constant(f"{name}.factor", factor.reshape(-1, 1, 1, 1))
        editor.constant(f"{name}.shift", (shift + (before - mean) * factor).astype(np.float32))
        weight = editor.add("Mul", [conv.input[1], f"{name}.factor"], [f"{name}.weight"])
        editor.remove([conv, norm])
        folded = onnx.NodeProto()
        folded.CopyFrom(conv)
        del folded.input[:], folded.output[:]
        folded.input.extend([conv.input[0], weight, f"{name}.shift"])
        folded.output.append(name)
        editor.nodes.append(folded)
