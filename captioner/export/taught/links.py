"""What the encoder of a taught model tells its decoder: outputs of one graph, inputs of the other."""

from __future__ import annotations

from collections.abc import MutableSequence

import onnx
from onnx import TensorProto, helper

GATE = "memory.taught"
"""What is added to the logits of new words, float (batch, 1, 1)."""
OPEN = "memory.open"
"""How near the photo is to those whose lessons brought new words, float (batch, 1, 1)."""
RARE = "memory.rare"
"""The factors of the scores of rare words, float (batch, 1, rows)."""


def declare(values: MutableSequence[onnx.ValueInfoProto], name: str, size: int) -> None:
    """Put an input or output, float (batch, 1, size), in the place of an earlier one of that name."""
    batch = values[0].type.tensor_type.shape.dim[0].dim_param
    kept = [value for value in values if value.name != name]
    del values[:]
    values.extend([*kept, helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 1, size])])
