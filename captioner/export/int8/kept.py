"""Keeps the rounding of an earlier INT8 graph where a later one computes the same.

Ranges and biases depend on the photos that they are measured on. A model that was taught with a few photos
would caption all others a little differently, only because it was rounded on these photos. What it adds to
corrected photos (`captioner.nn.encoder.taught`) is 0 for others, so the sum has the range that it had before.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import onnx
from onnx import numpy_helper

from captioner.nn.weights import current_name
from captioner.training.weights.stored import HALF

ROUNDING = (".scale", ".zero", ".bias.rounded")
TAUGHT = ".taught."
"""In the names of weights of what is added to corrected photos."""


def keep_rounding(rounded: bytes, earlier: bytes) -> bytes:
    """`rounded` with the constants of rounding that `earlier` has for the same values: those that come from
    the inputs and the weights of the same names by the same nodes, whatever the nodes are called."""
    new, old = _Graph(onnx.load_from_string(rounded)), _Graph(onnx.load_from_string(earlier))
    before = {key: node for key, node in old.keyed if key is not None}
    for key, node in new.keyed:
        if key in before:
            _keep(new, node, old, before[key])
    return bytes(new.model.SerializeToString(deterministic=True))


class _Graph:
    """The nodes of a graph, each with a key of what it computes, or None if that comes from constants of
    rounding only."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self.producers = {name: node for node in model.graph.node for name in node.output}
        self.keyed: list[tuple[Hashable, onnx.NodeProto]] = []
        self._keys: dict[str, Hashable] = {value.name: value.name for value in model.graph.input}
        self._keys |= {tensor.name: _constant(tensor) for tensor in model.graph.initializer}
        taught = {name for name in self.tensors if TAUGHT in name}
        for node in model.graph.node:
            added = [name for name in node.input if name in taught]
            if added and node.op_type == "Add" and len(added) == 1:
                [other] = [name for name in node.input if name not in taught]
                self._keys[node.output[0]] = self._keys[other]
                continue
            if node.op_type == "Cast" and node.input[0].endswith(HALF):
                self._keys[node.output[0]] = self._keys[node.input[0]]
                continue
            taught.update(node.output if added else ())
            inputs = tuple(self._keys.get(name) for name in node.input)
            attributes = tuple(sorted(attribute.SerializeToString() for attribute in node.attribute))
            # Hashes keep keys of long chains small.
            key = None if inputs and not any(inputs) else hash((node.op_type, attributes, inputs))
            self.keyed.append((key, node))
            self._keys.update({name: key and (key, place) for place, name in enumerate(node.output)})

    def is_rounding(self, name: str) -> bool:
        return name in self._keys and self._keys[name] is None


def _constant(tensor: onnx.TensorProto) -> Hashable:
    """What a constant is: the name of a matrix, or else the values, however they are stored; None for one of
    rounding."""
    if tensor.name.endswith(ROUNDING):
        return None
    name = current_name(tensor.name.removesuffix(HALF).removeprefix("model."))
    if tensor.external_data or len(tensor.dims) > 1 or name.startswith(("encoder.", "decoder.")):
        return name
    values = numpy_helper.to_array(tensor)
    wide = values.astype(np.float32) if values.dtype == np.float16 else values
    return wide.dtype.str, wide.shape, wide.tobytes()


def _keep(new: _Graph, node: onnx.NodeProto, old: _Graph, other: onnx.NodeProto) -> None:
    """Give the constants of rounding that `node` reads the values of those that `other` reads."""
    for name, earlier in zip(node.input, other.input, strict=True):
        tensor, source = new.tensors.get(name), old.tensors.get(earlier)
        if tensor is None and source is None:
            ours, theirs = new.producers.get(name), old.producers.get(earlier)
            if ours and theirs and ours.input and all(new.is_rounding(value) for value in ours.input):
                _keep(new, ours, old, theirs)
        elif tensor is not None and source is not None and name.endswith(ROUNDING):
            same = (tensor.data_type, tensor.dims) == (source.data_type, source.dims)
            if same and not source.external_data and not tensor.external_data:
                tensor.CopyFrom(source)
                tensor.name = name
