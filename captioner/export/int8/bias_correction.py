"""Corrects the biases of an INT8 graph.

Rounding shifts the mean of each channel of a convolution, and the shifts add up from layer to layer. They are
measured on photos and subtracted from the biases (Nagel et al. 2019, arXiv:1906.04721, section 4.2), from the
first convolution to the last: each is measured with those before it corrected. This costs no time later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from captioner.export.int8.quantizer import Quantizer
from captioner.export.int8.ranges import Array
from captioner.export.shared_weights import session

Feeds = Mapping[str, npt.NDArray[Any]]


def correct_biases(graph: bytes, rounded: bytes, source: str, batches: Sequence[Feeds]) -> bytes:
    """`rounded`, an INT8 graph made by `Quantizer` from `graph`, with corrected biases.

    `source` is the name of the file with `graph`, to which `rounded` refers; `batches`, of equal
    size, are inputs of both."""
    model = onnx.load_from_string(rounded)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    convolutions = [
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Conv" and f"{node.output[0]}.bias.rounded" in constants
    ]
    if not convolutions:
        return rounded
    wanted = _channel_means(Quantizer(graph).observed(convolutions), convolutions, batches)
    for name in convolutions:
        part = _up_to(model, name).SerializeToString()
        [found] = _channel_means(session(part, {source: graph}), [name], batches).values()
        bias, scale = constants[f"{name}.bias.rounded"], constants[f"{name}.bias.scale"]
        shift = np.round((wanted[name] - found) / numpy_helper.to_array(scale))
        corrected = (numpy_helper.to_array(bias) + shift).astype(np.int32)
        bias.CopyFrom(numpy_helper.from_array(corrected, bias.name))
    return bytes(model.SerializeToString(deterministic=True))


def _up_to(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """A graph with the output `name` and nothing that it does not need, which loads faster than the whole."""
    needed = {name}
    nodes: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(node.input)
            nodes.insert(0, node)
    graph = helper.make_graph(
        nodes,
        model.graph.name,
        model.graph.input,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    part = helper.make_model(graph, opset_imports=model.opset_import)
    part.ir_version = model.ir_version
    return part


def _channel_means(
    run: onnxruntime.InferenceSession, names: Sequence[str], batches: Sequence[Feeds]
) -> dict[str, Array]:
    """The mean of each channel of outputs (photos, channels, rows, columns)."""
    means = [
        [values.mean(axis=(0, 2, 3), dtype=np.float64) for values in run.run(names, feeds)]
        for feeds in batches
    ]
    return {name: np.mean(own, axis=0) for name, own in zip(names, zip(*means, strict=True), strict=True)}
