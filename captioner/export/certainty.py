"""Lets the encoder's graph of a model with classes tell how sure it is of what a photo shows."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from captioner.export.rewrites.editor import GraphEditor
from captioner.model.calibration import CERTAINTY

MEAN = f"{CERTAINTY}.mean"
"""The class scores of the photo, the mean of those of its cells, float (batch, classes)."""
_BIAS = "evidence.classes.bias"


def tell_certainty(model: onnx.ModelProto) -> None:
    """Add the output `CERTAINTY` to an encoder's graph: minus the entropy of the photo's classes, in nats,
    float (batch, 1). Nothing changes in a graph without classes, or with this output."""
    editor = GraphEditor(model)
    added = [node for node in editor.of_kind("Add") if any(name.endswith(_BIAS) for name in node.input)]
    if not added or CERTAINTY in editor.producers():
        return
    cells, last = (editor.constant(f"{CERTAINTY}.axis.{axis}", np.array([axis])) for axis in (1, -1))
    editor.add("ReduceMean", [added[0].output[0], cells], [MEAN], keepdims=0)
    editor.add("LogSoftmax", [MEAN], [f"{CERTAINTY}.log"], axis=-1)
    editor.add("Exp", [f"{CERTAINTY}.log"], [f"{CERTAINTY}.share"])
    editor.add("Mul", [f"{CERTAINTY}.log", f"{CERTAINTY}.share"], [f"{CERTAINTY}.part"])
    editor.add("ReduceSum", [f"{CERTAINTY}.part", last], [CERTAINTY], keepdims=1)
    [batch, *_] = model.graph.output[0].type.tensor_type.shape.dim
    model.graph.output.append(
        helper.make_tensor_value_info(CERTAINTY, TensorProto.FLOAT, [batch.dim_param, 1])
    )
    editor.write()
