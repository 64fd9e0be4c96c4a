"""A model as two ONNX graphs: one that runs once an image, one that runs once a word."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxscript import optimizer
from torch import Tensor, nn

from captioner.nn.decoder import Decoder, Tensors, expand_beams
from captioner.nn.model import CaptionModel

OPSET = 20
SMALLEST_HALVED = 1024  # values; smaller tensors are not worth a cast
TRANSPOSED = ".transposed"
"""Ends the name of a weight that a graph holds transposed."""


def encoder_graph(model: CaptionModel) -> onnx.ModelProto:
    """pixels, uint8 (batch, size, size, 3), and if the model letterboxes mask, bool (batch, cells) ->
    memory.* (batch, …) and state.* (batch, 1, …)."""
    inputs = _blank(model)
    with torch.no_grad():
        memory, state = model.encode(*inputs)
    names = [f"memory.{name}" for name in memory] + [f"state.{name}" for name in state]
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    return _export(_Encoder(model), inputs, shapes, ["pixels", "mask"][: len(inputs)], names)


def _blank(model: CaptionModel) -> tuple[Tensor, ...]:
    """Two black images, with the mask of a model that wants one."""
    size, (rows, columns) = model.options.image_size, model.options.grid
    pixels = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    if model.letterbox is None:
        return (pixels,)
    return pixels, torch.ones(2, rows * columns, dtype=torch.bool)


def decoder_graph(model: CaptionModel) -> onnx.ModelProto:
    """tokens and parents, int64 (batch, beams), memory.* and state.* -> log_probs (batch, beams, vocabulary),
    attention (batch, beams, cells), of a model with several heads their maps, attention_heads (batch, beams,
    heads, cells), and the new state, next.*.

    Beam b of image i continues beam parents[i, b] of the state that comes in; the first state has one beam.
    A state may grow with every step, as that of a Transformer does.
    """
    with torch.no_grad():
        memory, state = model.encode(*_blank(model))
        # Sizes that differ, so that the exporter cannot take one axis for another.
        state = expand_beams(state, 4)
        for _ in range(5):
            before = state
            state = model.decoder.step(torch.zeros(2, 4, dtype=torch.int64), memory, before).state
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    free = torch.export.Dim.DYNAMIC
    beams = {0: free, 1: free}
    grows = [
        {axis: free for axis in range(2, value.dim()) if value.shape[axis] != before[name].shape[axis]}
        for name, value in state.items()
    ]
    shapes = (beams, beams, (*({0: free} for _ in memory), *(beams | axes for axes in grows)))
    memory_names = [f"memory.{name}" for name in memory]
    state_names = [f"state.{name}" for name in state]
    heads = ["attention_heads"] if model.decoder.heads > 1 else []
    return _export(
        _DecoderStep(model.decoder, list(memory), list(state)),
        (tokens, tokens.clone(), *memory.values(), *state.values()),
        shapes,
        ["tokens", "parents", *memory_names, *state_names],
        ["log_probs", "attention", *heads, *(f"next.{name}" for name in state)],
    )


class _Encoder(nn.Module):
    def __init__(self, model: CaptionModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        # A copy: the mask is an input and in the memory an output, and a graph cannot give the one two names.
        memory, state = self.model.encode(pixels, None if mask is None else mask.clone())
        return [*memory.values(), *state.values()]


class _DecoderStep(nn.Module):
    def __init__(self, decoder: Decoder, memory: list[str], state: list[str]) -> None:
        super().__init__()
        self.decoder, self.memory, self.state = decoder, memory, state

    def forward(self, tokens: Tensor, parents: Tensor, *values: Tensor) -> list[Tensor]:
        memory: Tensors = dict(zip(self.memory, values, strict=False))
        state = {
            name: _continue(value, parents)
            for name, value in zip(self.state, values[len(self.memory) :], strict=True)
        }
        step = self.decoder.step(tokens, memory, state)
        maps = [step.attention] if step.heads is None else [step.attention, step.heads]
        return [torch.log_softmax(step.logits, dim=-1), *maps, *(step.state[n] for n in self.state)]


def _continue(value: Tensor, parents: Tensor) -> Tensor:
    """(batch, before, …) taken by (batch, beams) -> (batch, beams, …)."""
    batch, before = value.shape[:2]
    rows = parents + torch.arange(batch).unsqueeze(1) * before
    return value.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, parents.shape)


@torch.no_grad()
def _export(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    shapes: tuple[Any, ...],
    names: list[str],
    outputs: list[str],
) -> onnx.ModelProto:
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
    # Not all optimisations of the exporter: it would melt batch normalisation into the convolutions, whose
    # weights half precision could then no longer hold. ONNX Runtime does that when it loads the graph.
    optimizer.fold_constants(program.model)
    optimizer.remove_unused_nodes(program.model)
    graph = program.model_proto
    _name_weights(graph, module)
    _store_halves(graph)
    # Where the exporter found each node in our sources is of no use to anyone else.
    for node in graph.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.checker.check_model(graph)
    return graph


def _name_weights(model: onnx.ModelProto, module: nn.Module) -> None:
    """Give weights that the exporter transposed or reshaped their names back, so that a graph can be read
    as a state dict (`captioner.training.start`)."""
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


def _store_halves(model: onnx.ModelProto) -> None:
    """Store large weights in half precision, widened when the graph is loaded.

    Only weights that half precision holds exactly are stored so (training rounds them, see
    `captioner.training.checkpoint`): the graph computes the very same, in half of the space.
    """
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size < SMALLEST_HALVED or not np.array_equal(
            values, values.astype(np.float16).astype(np.float32)
        ):
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(
            helper.make_node("Cast", [f"{name}.half"], [name], f"{name}.widen", to=TensorProto.FLOAT)
        )
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
