"""The names and forms under which the graphs of a bundle store weights."""

from __future__ import annotations

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from captioner.nn.weights import current_name

TRANSPOSED = ".transposed"
"""Suffix of the names of weights that are stored transposed."""
HALF = ".half"
"""Suffix of a weight in half precision, or of whole numbers in 8 or 16 bits."""
BYTES, SCALE = ".bytes", ".scale"
"""Suffixes of a weight in 8 bits, and of the scale of each of its columns."""


ADDED = ".added"
"""Suffix of the rows of a weight that belong to words which came with corrections, after those of all other
words (`captioner.export.taught`)."""
RARE = "decoder.embedding.rare."
"""Begins the names of the weights of `captioner.nn.decoder.embedding.RareWords`."""


def stored_weights(graph: bytes) -> dict[str, Tensor]:
    """The weights of a graph by their names in `CaptionModel`, in float32."""
    held = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load_from_string(graph).graph.initializer
    }
    weights = {}
    for stored, content in held.items():
        name, values = stored.removesuffix(HALF), np.array(content, dtype=np.float32)
        if stored.endswith(BYTES):
            name = stored.removesuffix(BYTES)
            values *= held[name + SCALE]
        name = current_name(name.removeprefix("model."))
        if name.endswith(TRANSPOSED):
            name, values = name.removesuffix(TRANSPOSED), values.T.copy()
        weights[name] = torch.from_numpy(values)
    return weights
