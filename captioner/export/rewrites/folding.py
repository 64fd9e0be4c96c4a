"""Rewrites a float graph into the nodes that are quantised: convolutions and plain products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from captioner.export.rewrites.editor import GraphEditor, attributes

SMALLEST = 4096
"""Elements; smaller weights are not quantized."""
LEAST_TERMS = 96
"""Products of an image's features that sum fewer terms hardly get faster in INT8."""


def split_gemms(editor: GraphEditor) -> None:
    """Replace each `Gemm` that gains from INT8, a product of one vector per image, by `MatMul` and `Add` with
    a further axis of length 1. With two axes, ONNX Runtime would join them to a `Gemm` again, which it
    computes in float32."""
    producers = editor.producers()
    rows: dict[str, str] = {}
    for gemm in [node for node in editor.of_kind("Gemm") if len(node.input) == 3]:
        given = attributes(gemm)
        (source, weight, bias), output = gemm.input, gemm.output[0]
        matrix, added = (_stored(editor, producers, name) for name in (weight, bias))
        transposed = given.get("transB", 0)
        if (
            (given.get("alpha", 1.0), given.get("beta", 1.0), given.get("transA", 0)) != (1.0, 1.0, 0)
            or matrix is None
            or added is None
            or added.ndim != 1
            or matrix.size < SMALLEST
            or matrix.shape[1 if transposed else 0] < LEAST_TERMS
        ):
            continue
        editor.remove([gemm])
        editor.constant("image.axis", np.array([1]))
        if source not in rows:
            rows[source] = editor.add("Unsqueeze", [source, "image.axis"], [f"{source}.row"])
        if transposed:
            weight = editor.add("Transpose", [weight], [f"{output}.weight"], perm=[1, 0])
        editor.add("MatMul", [rows[source], weight], [f"{output}.product"])
        editor.add("Add", [f"{output}.product", bias], [f"{output}.sum"])
        editor.add("Squeeze", [f"{output}.sum", "image.axis"], [output])


def _stored(
    editor: GraphEditor, producers: Mapping[str, onnx.NodeProto], name: str
) -> npt.NDArray[Any] | None:
    """A constant that is stored, perhaps in half precision behind a `Cast`; None for anything else."""
    node = producers.get(name)
    return editor.array(node.input[0] if node is not None and node.op_type == "Cast" else name)


def fold_batch_norms(editor: GraphEditor) -> None:
    """Fold batch normalisation into the convolution before it; the new weights are an expression of those
    in the graph."""
    uses, producers = editor.uses(), editor.producers()

    def values(name: str) -> npt.NDArray[np.float32]:
        held = _stored(editor, producers, name)
        assert held is not None
        return held.astype(np.float32)

    for norm in editor.of_kind("BatchNormalization"):
        conv = producers.get(norm.input[0])
        if conv is None or conv.op_type != "Conv" or uses[norm.input[0]] != 1:
            continue
        gain, shift, mean, variance = (values(name) for name in norm.input[1:])
        epsilon = attributes(norm).get("epsilon", 1e-5)
        factor = (gain / np.sqrt(variance + epsilon)).astype(np.float32)
        before = values(conv.input[2]) if len(conv.input) > 2 else np.zeros_like(mean)
        name = norm.output[0]
        editor.constant(f"{name}.factor", factor.reshape(-1, 1, 1, 1))
        editor.constant(f"{name}.shift", (shift + (before - mean) * factor).astype(np.float32))
        weight = editor.add("Mul", [conv.input[1], f"{name}.factor"], [f"{name}.weight"])
        editor.remove([conv, norm])
        folded = onnx.NodeProto()
        folded.CopyFrom(conv)
        del folded.input[:], folded.output[:]
        folded.input.extend([conv.input[0], weight, f"{name}.shift"])
        folded.output.append(name)
        editor.nodes.append(folded)
