"""Finds the values of an encoder's graph that what is taught reads or changes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.export.shared_weights import session
from captioner.model.bundle import Bundle
from captioner.nn.encoder import STRIDES
from captioner.nn.model import CaptionModel

_CLOSE = 1e-3


class Places(NamedTuple):
    """Names of values in the graph, before anything was added to them."""

    deepest: str
    """The deepest output."""
    grid: str
    scores: str | None
    """The class scores; None for models without classes."""


@torch.no_grad()
def find_places(start: Bundle, model: CaptionModel) -> Places:
    """Exporters name values as they like, so they are found by what they are for two images of noise. Raises
    `DataError` if the graph does not compute them."""
    size, (rows, columns) = start.image_size, start.grid
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (2, size, size, 3), dtype=torch.uint8, generator=generator)
    feeds: dict[str, npt.NDArray[np.generic]] = {"pixels": pixels.numpy()}
    mask = None
    if start.letterbox is not None:
        mask = torch.ones(2, rows * columns, dtype=torch.bool)
        feeds["mask"] = mask.numpy()
    encoder = model.encoder
    outputs = encoder.outputs(encoder.inputs(pixels), 0, len(STRIDES))
    graph = onnx.load_from_string(start.encoder)
    names = [name for node in graph.graph.node for name in node.output if name]
    del graph.graph.output[:]
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    values = dict(zip(names, session(graph.SerializeToString()).run(names, feeds), strict=True))
    scores = None if model.evidence is None else _name(values, model.evidence.class_logits(outputs[-1]))
    return Places(_name(values, outputs[-1]), _name(values, encoder.untaught(outputs, mask)), scores)


def _name(values: dict[str, npt.NDArray[np.generic]], wanted: Tensor) -> str:
    array = wanted.numpy()
    most = _CLOSE * np.abs(array).max()
    for name, value in values.items():
        if value.shape == array.shape and np.abs(value - array).max() < most:
            return name
    raise DataError("the graphs of the model do not compute what its network does, so it cannot be taught")
