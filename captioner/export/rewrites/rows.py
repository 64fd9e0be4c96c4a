"""Scales each row of gated values before a product, and the row of results after it.

The perceptrons of transformers have few, very large values in few rows: one scale for all rows would leave
none of the 256 steps of 8 bits for the others. With its own largest value as the unit of each row, all lie
between -1 and 1. In float32 the results are the same.
"""

from __future__ import annotations

import numpy as np

from captioner.export.rewrites.editor import GraphEditor

LEAST_UNIT = 0.2
"""Smallest unit of a row; x sigmoid(1.7 x) is nowhere below -0.17."""


def scale_gated_rows(editor: GraphEditor) -> None:
    """Rewrite every product of x sigmoid(…) with a constant matrix."""
    producers = editor.producers()

    def is_gated(name: str) -> bool:
        node = producers.get(name)
        if node is None or node.op_type != "Mul":
            return False
        return any(depends(gate, value) for gate, value in (node.input, reversed(node.input)))

    def depends(gate: str, value: str) -> bool:
        """Whether `gate` is the sigmoid of `value`, or of a multiple of it. Gates of LSTMs are not."""
        node = producers.get(gate)
        if node is None or node.op_type != "Sigmoid":
            return False
        inner = producers.get(node.input[0])
        return value == node.input[0] or (
            inner is not None and inner.op_type == "Mul" and value in inner.input
        )

    for product in [node for node in editor.of_kind("MatMul") if is_gated(node.input[0])]:
        (source, weight), output = product.input, product.output[0]
        if weight not in editor.constants:
            continue
        editor.remove([product])
        axis = editor.constant("row.features", np.array([-1]))
        least = editor.constant("row.least", np.array(LEAST_UNIT, dtype=np.float32))
        editor.add("ReduceMax", [source, axis], [f"{output}.largest"])
        editor.add("Max", [f"{output}.largest", least], [f"{output}.unit"])
        editor.add("Div", [source, f"{output}.unit"], [f"{output}.even"])
        editor.add("MatMul", [f"{output}.even", weight], [f"{output}.rows"])
        editor.add("Mul", [f"{output}.rows", f"{output}.unit"], [output])
