"""Where a decoder's graph compares its output with the words."""

from __future__ import annotations

from captioner.export.rewrites.editor import GraphEditor

WEIGHT, BIAS = "decoder.embedding.weight", "decoder.embedding.bias"
"""Names of the weights of the words that the model knew before it was taught."""


def compared(editor: GraphEditor) -> str:
    """What a step compares with the words."""
    [reader] = [node for node in editor.nodes if BIAS in node.input and BIAS not in node.output]
    if reader.op_type == "Gemm":
        return str(reader.input[0])
    product = editor.producers()[next(name for name in reader.input if name != BIAS)]
    return str(product.input[0])
