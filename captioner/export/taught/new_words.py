"""Adds the words that corrections brought to a decoder's graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from captioner.export.rewrites.editor import GraphEditor
from captioner.export.taught.links import GATE, OPEN, declare
from captioner.export.taught.outputs import BIAS, WEIGHT, compared
from captioner.model.vocabulary import Vocabulary
from captioner.training.weights.stored import ADDED

NEVER = -1e4
"""What is added to the logits of new words, of which some are 30 nats above all others, for photos that are
less near than `SHUT` to those of the lessons that brought them."""
SHUT = 0.05
_NEVER = "taught.never"
"""`NEVER` for each new word, float (words,); 0 for those of models from before it."""

Array = npt.NDArray[np.float32]


def added_words(decoder: onnx.ModelProto) -> int:
    """The number of words that a graph was taught."""
    return sum(one.dims[0] for one in decoder.graph.initializer if one.name.startswith(BIAS + ADDED))


def add_new_words(model: onnx.ModelProto, weight: Array, bias: Array) -> None:
    """Give a step the new words, (words, embedding) and (words,), in place of earlier ones."""
    earlier = added_words(model)
    new = {
        name + ADDED: numpy_helper.from_array(one, name + ADDED)
        for name, one in ((WEIGHT, weight), (BIAS, bias))
    }
    editor = GraphEditor(model)
    never = np.full(len(weight), NEVER, dtype=np.float32)
    before = editor.array(_NEVER)
    never[:earlier] = 0 if before is None else before
    new[_NEVER] = numpy_helper.from_array(never, _NEVER)
    editor.remove(node for node in editor.nodes if node.output[0] in new)  # that widen earlier ones
    editor.replace_initializers(tuple(new), new.values())
    [log_probs] = [value for value in model.graph.output if value.name == "log_probs"]
    words = log_probs.type.tensor_type.shape.dim[2]
    if not earlier:
        _splice_words(model, editor, words.dim_value)
    if before is None:
        _bar_words(model, editor)
    editor.write()
    words.dim_value += len(weight) - earlier


def _splice_words(model: onnx.ModelProto, editor: GraphEditor, known: int) -> None:
    """Compute logits of the new words too. Whatever else reads a word, such as the checklist, sees padding
    instead of them."""
    producers = editor.producers()
    declare(model.graph.input, GATE, 1)
    number = editor.constant("taught.known", np.array(known))
    padding = editor.constant("taught.padding", np.array(Vocabulary.pad_id))
    for node in editor.nodes:
        if node.op_type == "Gather" and node.input[0] == WEIGHT:
            node.input[0] = "taught.embedding"
        elif "tokens" in node.input:
            node.input[list(node.input).index("tokens")] = "tokens.known"
    editor.add("Less", ["tokens", number], ["tokens.is_known"])
    editor.add("Where", ["tokens.is_known", "tokens", padding], ["tokens.known"])
    editor.add("Concat", [WEIGHT, WEIGHT + ADDED], ["taught.embedding"], axis=0)
    editor.add("Transpose", [WEIGHT + ADDED], ["taught.columns"], perm=[1, 0])
    editor.add("MatMul", [compared(editor), "taught.columns"], ["taught.product"])
    editor.add("Add", [BIAS + ADDED, GATE], ["taught.bias"])
    editor.add("Add", ["taught.product", "taught.bias"], ["taught.logits"])
    last = producers["log_probs"]
    editor.add("Concat", [last.input[0], "taught.logits"], ["logits"], axis=-1)
    last.input[0] = "logits"


def _bar_words(model: onnx.ModelProto, editor: GraphEditor) -> None:
    """Make new words impossible for photos that they are not meant for."""
    declare(model.graph.input, OPEN, 1)
    reader = editor.producers()["taught.logits"]
    reader.input[list(reader.input).index("taught.bias")] = "taught.closed"
    limit, none = (
        editor.constant(f"taught.{name}", np.array(value, dtype=np.float32))
        for name, value in (("shut", SHUT), ("none", 0.0))
    )
    editor.add("Less", [OPEN, limit], ["taught.is_shut"])
    editor.add("Where", ["taught.is_shut", _NEVER, none], ["taught.barred"])
    editor.add("Add", ["taught.bias", "taught.barred"], ["taught.closed"])
