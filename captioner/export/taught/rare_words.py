"""Adds the scores of rare words to a decoder's graph."""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from captioner.export.rewrites.editor import GraphEditor
from captioner.export.taught import links
from captioner.export.taught.outputs import compared
from captioner.nn.decoder.embedding import RareWords
from captioner.training.weights.stored import RARE


def add_rare_words(model: onnx.ModelProto, rare: RareWords) -> None:
    """Add the scores of rare words to a step, in place of earlier ones."""
    new = {
        RARE + name: numpy_helper.from_array(values.numpy(), RARE + name)
        for name, values in rare.state_dict().items()
    }
    editor = GraphEditor(model)
    editor.remove(node for node in editor.nodes if node.output[0] in new)  # that widen earlier ones
    editor.replace_initializers(RARE, new.values())
    if "rare.scores" not in editor.producers():
        _splice_rare(editor)
    links.declare(model.graph.input, links.RARE, len(rare.words))
    editor.write()


def _splice_rare(editor: GraphEditor) -> None:
    last = editor.producers()["log_probs"]
    editor.add("Transpose", [f"{RARE}weight"], ["rare.columns"], perm=[1, 0])
    editor.add("MatMul", [compared(editor), "rare.columns"], ["rare.product"])
    editor.add("Add", ["rare.product", f"{RARE}bias"], ["rare.sum"])
    editor.add("Mul", ["rare.sum", links.RARE], ["rare.scores"])
    editor.add("Shape", ["rare.scores"], ["rare.shape"])
    editor.add("Expand", [f"{RARE}words", "rare.shape"], ["rare.words"])
    scattered = [last.input[0], "rare.words", "rare.scores"]
    last.input[0] = editor.add("ScatterElements", scattered, ["rare.logits"], axis=-1, reduction="add")
