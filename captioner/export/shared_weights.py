"""Graphs that refer to weights in the file of another graph, so that a bundle holds them once."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnxruntime
from onnx import TensorProto

_LEAST_BYTES = 4096
"""Smaller tensors stay in both graphs."""


def refer_to(model: onnx.ModelProto, content: bytes, file: str) -> None:
    """Replace tensors that the float graph `content` holds by references into its `file`."""
    for tensor in model.graph.initializer:
        values = tensor.raw_data
        offset = content.find(values) if len(values) >= _LEAST_BYTES else -1
        if offset < 0:
            continue
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", offset), ("length", len(values))):
            tensor.external_data.add(key=key, value=str(value))


def hold_weights(model: onnx.ModelProto, content: bytes) -> None:
    """The reverse of `refer_to`."""
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in tensor.external_data}
            start = int(place["offset"])
            tensor.raw_data = content[start : start + int(place["length"])]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")


def session(graph: bytes, files: Mapping[str, bytes] | None = None) -> onnxruntime.InferenceSession:
    """A session on the CPU; `files` are those that the graph refers to."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if files:
        options.add_external_initializers_from_files_in_memory(
            list(files), list(files.values()), [len(content) for content in files.values()]
        )
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
