"""Stores large weights in fewer bytes: in half precision, in 8 bits with a scale for each column, or as small
integers.

Only weights that this represents exactly are stored so (training rounds to half precision, see
`captioner.training.weights.checkpoint`; export rounds `ByteLinear` layers): ONNX Runtime widens them when it
loads the graph, which then computes the same as before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from captioner.training.weights.stored import BYTES, HALF, SCALE

SMALLEST = 1024
"""Elements; smaller tensors are not worth a cast."""
_SMALLER = {np.int64: (np.int8, np.int16), np.float32: (np.int8, np.float16)}
"""Types that may hold the values of another one, the smallest first."""
_LARGEST = 127
_CLOSE = 1e-6


def store_compactly(model: onnx.ModelProto) -> None:
    """Replace initializers by smaller ones and the nodes that widen them, in place."""
    nodes, tensors = [], []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        name = tensor.name
        if values.size < SMALLEST:
            tensors.append(tensor)
        elif (smaller := _smaller(values)) is not None:
            tensors.append(numpy_helper.from_array(smaller, name + HALF))
            nodes.append(_widen(name + HALF, name, tensor.data_type))
        elif tensor.data_type != TensorProto.FLOAT:
            tensors.append(tensor)
        elif (parts := columns_in_bytes(values)) is not None:
            integers, scale = parts
            tensors.append(numpy_helper.from_array(integers, name + BYTES))
            tensors.append(numpy_helper.from_array(scale, name + SCALE))
            nodes.append(_widen(name + BYTES, f"{name}.integers"))
            nodes.append(
                helper.make_node("Mul", [f"{name}.integers", name + SCALE], [name], f"{name}.scaled")
            )
        else:
            tensors.append(tensor)
    nodes += model.graph.node
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(tensors)
    model.graph.node.extend(nodes)


def _widen(stored: str, name: str, kind: int = TensorProto.FLOAT) -> onnx.NodeProto:
    return helper.make_node("Cast", [stored], [name], f"{name}.widen", to=kind)


def _smaller(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The same values in the smallest type that holds them all, float16 at most; None if there is none."""
    for kind in _SMALLER.get(values.dtype.type, ()):
        with np.errstate(over="ignore", invalid="ignore"):
            smaller = values.astype(kind)
        if np.array_equal(smaller.astype(values.dtype), values):
            return smaller
    return None


def columns_in_bytes(
    values: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]] | None:
    """A matrix as int8 times a scale for each column; None unless that is the matrix."""
    if values.ndim != 2:
        return None
    scale = np.abs(values).max(axis=0).clip(np.finfo(np.float32).tiny) / _LARGEST
    integers = np.round(values / scale)
    exact = np.abs(integers * scale - values) <= _CLOSE * _LARGEST * scale
    return (integers.astype(np.int8), scale.astype(np.float32)) if exact.all() else None
