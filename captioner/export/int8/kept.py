"""Keeps the rounding of an earlier INT8 graph where a later one computes the same.

Ranges and biases depend on the photos that they are measured on. A model that was taught with a few photos
would caption all others a little differently, only because it was rounded on these photos.
"""

from __future__ import annotations

import onnx

from captioner.nn.weights import current_name

ROUNDING = (".scale", ".zero", ".bias.rounded")


def keep_rounding(rounded: bytes, earlier: bytes) -> bytes:
    """`rounded` with the constants of rounding that `earlier` has for the same values: those that come from
    the inputs by the same nodes, by name."""
    model = onnx.load_from_string(rounded)
    before = onnx.load_from_string(earlier)
    constants = {current_name(tensor.name): tensor for tensor in before.graph.initializer}
    nodes = {name: node for node in before.graph.node for name in node.output}
    same = {value.name for value in model.graph.input} | {""}
    names = {tensor.name: current_name(tensor.name) for tensor in model.graph.initializer}
    same |= {name for name, current in names.items() if current in constants}
    kept: set[str] = set()
    for node in model.graph.node:
        other = nodes.get(node.output[0])
        if (
            other is not None
            and other.op_type == node.op_type
            and [current_name(name) for name in other.input] == [current_name(name) for name in node.input]
            and same.issuperset(node.input)
        ):
            same.update(node.output)
            kept.update(node.input)
    for tensor in model.graph.initializer:
        old = constants.get(names[tensor.name])
        if (
            old is not None
            and tensor.name in kept
            and tensor.name.endswith(ROUNDING)
            and (tensor.data_type, tensor.dims) == (old.data_type, old.dims)
            and not old.external_data
            and not tensor.external_data
        ):
            name = tensor.name
            tensor.CopyFrom(old)
            tensor.name = name
    return bytes(model.SerializeToString(deterministic=True))
