"""Which products of gated values have their rows scaled."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from captioner.export.rewrites.editor import GraphEditor
from captioner.export.rewrites.rows import scale_gated_rows


@pytest.mark.parametrize(("other", "scaled"), [("x", True), ("y", False)])
def test_a_gate_of_another_value_is_that_of_an_lstm(other: str, scaled: bool) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "slope"], ["steep"]),
        helper.make_node("Sigmoid", ["steep"], ["gate"]),
        helper.make_node("Mul", [other, "gate"], ["gated"]),
        helper.make_node("MatMul", ["gated", "weight"], ["out"]),
    ]
    constants = [
        numpy_helper.from_array(np.ones(8, dtype=np.float32), "slope"),
        numpy_helper.from_array(np.ones((8, 4), dtype=np.float32), "weight"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    result = helper.make_tensor_value_info("out", TensorProto.FLOAT, [2, 4])
    model = helper.make_model(helper.make_graph(nodes, "rows", values, [result], constants))
    editor = GraphEditor(model)
    scale_gated_rows(editor)
    editor.write()
    onnx.checker.check_model(model)
    assert ("ReduceMax" in [node.op_type for node in model.graph.node]) == scaled
