"""A model as two ONNX graphs: one runs once per image, one once per word."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxscript import optimizer
from torch import Tensor, nn

from captioner.export.certainty import tell_certainty
from captioner.export.rewrites.editor import GraphEditor
from captioner.export.rewrites.fusion import fuse
from captioner.export.rewrites.storage import store_compactly
from captioner.nn.decoder import Decoder, Tensors, expand_beams
from captioner.nn.model import CaptionModel
from captioner.training.weights.stored import TRANSPOSED

OPSET = 20


def encoder_graph(model: CaptionModel) -> onnx.ModelProto:
    """pixels, uint8 (batch, size, size, 3), and if the model letterboxes mask, bool (batch, cells) ->
    memory.* (batch, …) and state.* (batch, 1, …), and for models with classes certainty (batch, 1)."""
    inputs = _blank(model)
    with torch.no_grad():
        memory, state = model.encode(*inputs)
    names = [f"memory.{name}" for name in memory] + [f"state.{name}" for name in state]
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    graph = export_graph(_Encoder(model), inputs, shapes, ["pixels", "mask"][: len(inputs)], names)
    tell_certainty(graph)
    return graph


def _blank(model: CaptionModel) -> tuple[Tensor, ...]:
    """Two black images, with a mask if the model needs one."""
    size, (rows, columns) = model.options.image_size, model.options.grid
    pixels = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    if model.letterbox is None:
        return (pixels,)
    return pixels, torch.ones(2, rows * columns, dtype=torch.bool)


def decoder_graph(model: CaptionModel) -> onnx.ModelProto:
    """One step: the last words read, the next ones chosen.

    Inputs: tokens and parents, int64 (batch, beams), memory.* and state.*; beam b of image i continues beam
    parents[i, b] of the state that comes in (the first state has one beam). And the query: count, int64
    (1), forbidden, int64 (batch, beams, any), tokens that may not follow, and asked, int64 (any).

    Outputs: log_probs (batch, beams, vocabulary), which need not be fetched; attention (batch, beams,
    cells); for models with several heads their maps, attention_heads (batch, beams, heads, cells); the best
    `count` continuations that are not forbidden, top_log_probs and top_tokens (batch, beams, count), best
    first; asked_log_probs (batch, beams, asked), of the tokens in asked; and the new state, next.*. A
    state may grow with every step, as a Transformer's does.
    """
    with torch.no_grad():
        memory, state = model.encode(*_blank(model))
        # Sizes that differ, so that the exporter cannot take one axis for another.
        state = expand_beams(state, 3)
        for _ in range(5):
            before = state
            state = model.decoder.step(torch.zeros(2, 3, dtype=torch.int64), memory, before).state
    free = torch.export.Dim.DYNAMIC
    beams = {0: free, 1: free}
    grows = [
        {axis: free for axis in range(2, value.dim()) if value.shape[axis] != before[name].shape[axis]}
        for name, value in state.items()
    ]
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    shapes = (beams, (*({0: free} for _ in memory), *(beams | axes for axes in grows)))
    memory_names = [f"memory.{name}" for name in memory]
    state_names = [f"state.{name}" for name in state]
    heads = ["attention_heads"] if model.decoder.heads > 1 else []
    graph = export_graph(
        _DecoderStep(model.decoder, list(memory), list(state)),
        (tokens, *memory.values(), *state.values()),
        shapes,
        ["tokens", *memory_names, *state_names],
        ["log_probs", "attention", *heads, *(f"next.{name}" for name in state)],
    )
    editor = GraphEditor(graph)
    _continue_beams(graph, editor, state_names)
    _choose(graph, editor)
    editor.write()
    onnx.checker.check_model(graph)
    return graph


class _Encoder(nn.Module):
    def __init__(self, model: CaptionModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        # A copy: the mask is an input and, in the memory, an output, and a value of a graph has only one
        # name.
        memory, state = self.model.encode(pixels, None if mask is None else mask.clone())
        return [*memory.values(), *state.values()]


class _DecoderStep(nn.Module):
    def __init__(self, decoder: Decoder, memory: list[str], state: list[str]) -> None:
        super().__init__()
        self.decoder, self.memory, self.state = decoder, memory, state

    def forward(self, tokens: Tensor, *values: Tensor) -> list[Tensor]:
        memory: Tensors = dict(zip(self.memory, values, strict=False))
        state = dict(zip(self.state, values[len(self.memory) :], strict=True))
        step = self.decoder.step(tokens, memory, state)
        maps = [step.attention] if step.heads is None else [step.attention, step.heads]
        return [torch.log_softmax(step.logits, dim=-1), *maps, *(step.state[n] for n in self.state)]


def _continue_beams(model: onnx.ModelProto, editor: GraphEditor, states: list[str]) -> None:
    """Let the first nodes take each state (batch, before, …) by parents (batch, beams)."""
    tokens, *others = model.graph.input
    batch, beams = (axis.dim_param for axis in tokens.type.tensor_type.shape.dim)
    parents = helper.make_tensor_value_info("parents", TensorProto.INT64, [batch, beams])
    del model.graph.input[:]
    model.graph.input.extend([tokens, parents, *others])
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "last_axis"))
    for node in editor.nodes:
        renamed = [f"{name}.continued" if name in states else name for name in node.input]
        node.ClearField("input")
        node.input.extend(renamed)
    editor.add("Unsqueeze", ["parents", "last_axis"], ["parents.index"])
    for value in others:
        if value.name in states:
            value.type.tensor_type.shape.dim[1].dim_param = "before"
            editor.add("GatherND", [value.name, "parents.index"], [f"{value.name}.continued"], batch_dims=1)


def _choose(model: onnx.ModelProto, editor: GraphEditor) -> None:
    """Find the best continuations inside the graph, so that log-probabilities of the whole vocabulary
    need not be copied or searched in Python."""
    batch, beams = (axis.dim_param for axis in model.graph.input[0].type.tensor_type.shape.dim)
    floats, integers = TensorProto.FLOAT, TensorProto.INT64
    model.graph.input.extend(
        [
            helper.make_tensor_value_info("count", integers, [1]),
            helper.make_tensor_value_info("forbidden", integers, [batch, beams, "tokens_forbidden"]),
            helper.make_tensor_value_info("asked", integers, ["tokens_asked"]),
        ]
    )
    never = helper.make_tensor("never", floats, [1], [float("-inf")])
    editor.add("Shape", ["forbidden"], ["forbidden.shape"])
    editor.add("ConstantOfShape", ["forbidden.shape"], ["forbidden.values"], value=never)
    editor.add("ScatterElements", ["log_probs", "forbidden", "forbidden.values"], ["allowed"], axis=2)
    editor.add("TopK", ["allowed", "count"], ["top_log_probs", "top_tokens"], axis=2)
    editor.add("Gather", ["log_probs", "asked"], ["asked_log_probs"], axis=2)
    model.graph.output.extend(
        [
            helper.make_tensor_value_info("top_log_probs", floats, [batch, beams, "tokens_chosen"]),
            helper.make_tensor_value_info("top_tokens", integers, [batch, beams, "tokens_chosen"]),
            helper.make_tensor_value_info("asked_log_probs", floats, [batch, beams, "tokens_asked"]),
        ]
    )


@torch.no_grad()
def export_graph(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    shapes: tuple[Any, ...],
    names: list[str],
    outputs: list[str],
) -> onnx.ModelProto:
    """A module as a graph, whose weights have the names that they have there. `inputs` are examples, with
    `shapes` the axes that vary; `names` and `outputs` are those of the graph."""
    program = torch.onnx.export(
        module.eval(),
        inputs,
        input_names=names,
        output_names=outputs,
        dynamic_shapes=shapes,
        opset_version=OPSET,
        verbose=False,
        optimize=False,
    )
    assert program is not None
    # Not all optimisations of the exporter: it would fold batch normalisation into the convolutions, whose
    # weights would then no longer be exact in half precision. ONNX Runtime does that when it loads the graph.
    optimizer.fold_constants(program.model)
    optimizer.remove_unused_nodes(program.model)
    graph = program.model_proto
    _name_weights(graph, module)
    fuse(graph)
    store_compactly(graph)
    # The place in our sources that the exporter records for each node is of no use to anyone else.
    for node in graph.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.checker.check_model(graph)
    return graph


def _name_weights(model: onnx.ModelProto, module: nn.Module) -> None:
    """Restore the names of weights that the exporter transposed or reshaped, so that a graph can be read
    as a state dict (`captioner.training.weights.start`)."""
    weights = {name: value.numpy() for name, value in module.state_dict().items()}
    held = {tensor.name for tensor in model.graph.initializer}
    lost = {name: weight for name, weight in weights.items() if name not in held}
    names = {}
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            continue
        values = numpy_helper.to_array(tensor).ravel()
        for name, weight in lost.items():
            if weight.size != values.size or values.size == 1:
                continue
            if np.array_equal(weight.ravel(), values):
                names[tensor.name] = name
            elif np.array_equal(weight.T.ravel(), values):
                names[tensor.name] = name + TRANSPOSED
            else:
                continue
            del lost[name]
            break
    for tensor in model.graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
