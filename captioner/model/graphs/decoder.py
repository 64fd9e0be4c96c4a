"""The exported decoder as a `captioner.model.search.Stepper`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from captioner.model.graphs.graph import Graph
from captioner.model.graphs.spans import count_step
from captioner.model.search.choices import Choices, Floats, Ints, StepRequest, choose_among

HEADS = "attention_heads"
"""The output that a decoder with several heads has beside `attention`."""
CHOSEN = ("top_log_probs", "top_tokens", "asked_log_probs")
"""Outputs of a decoder that finds the best continuations itself; those of older bundles do not."""
_MEAN = -1
"""Instead of the number of a head: the mean of all."""
_State = tuple[dict[str, Any], Ints]
"""The decoder's state of each beam, and the beams that the next ones continue, (images, beams)."""


class OnnxDecoder:
    """The decoder's graph: one step for a batch of beams. Thread-safe."""

    def __init__(self, graph: Graph, vocabulary: int) -> None:
        """`vocabulary` is the number of words."""
        self.graph, self._vocabulary = graph, vocabulary
        self.chooses = "top_tokens" in graph.outputs
        """Whether the graph chooses the best continuations; otherwise it returns all log-probabilities."""
        self.heads: int = graph.outputs[HEADS][2] if HEADS in graph.outputs else 1
        """Number of maps per word."""
        self._next = [name for name in graph.outputs if name.startswith("next.")]

    def feeds(
        self, tokens: Ints, parents: Ints, values: Mapping[str, Any], request: StepRequest | None
    ) -> dict[str, Any]:
        """The inputs of the graph for one step; `values` are the memory and the state."""
        feeds = {"tokens": tokens, "parents": parents, **values}
        if self.chooses:
            if request is None:
                zeros = np.zeros((*tokens.shape, 1), dtype=np.int64)
                request = StepRequest(1, zeros, zeros[0, 0])
            feeds["count"] = np.array([min(request.best, self._vocabulary)])
            feeds["forbidden"], feeds["asked"] = request.forbidden, request.tracked
        return feeds

    def run(
        self, feeds: Mapping[str, Any], wanted: Sequence[str], heads: Ints | None
    ) -> tuple[dict[str, Any], Floats, dict[str, Any]]:
        """One step: the `wanted` outputs, the maps (images, beams, cells), and the new state.

        The maps are of the head that `heads`, (images,), names for each image: of the mean of all where it is
        `_MEAN` or not given. The state stays on the device.
        """
        if heads is None or self.heads == 1:
            fetched, kept = self.graph.run(feeds, (*wanted, "attention"), self._next)
            return fetched, fetched["attention"], _as_state(kept)
        maps = [name for name, needed in (("attention", heads < 0), (HEADS, heads >= 0)) if needed.any()]
        fetched, kept = self.graph.run(feeds, (*wanted, *maps), self._next)
        if HEADS in fetched:
            attention = fetched[HEADS][np.arange(len(heads)), :, heads]
            if "attention" in fetched:
                attention = np.where(heads[:, None, None] < 0, fetched["attention"], attention)
        else:
            attention = fetched["attention"]
        return fetched, attention, _as_state(kept)


class OnnxStepper:
    """The exported decoder with an encoded batch of images.

    The graph itself reorders the beams of its state, so `reorder` only records how.
    """

    def __init__(
        self,
        decoder: OnnxDecoder,
        images: int,
        memory: dict[str, Any],
        state: dict[str, Any],
        heads: Ints | None = None,
        certainty: Any = None,
    ) -> None:
        self._decoder, self._images, self._memory, self._state = decoder, images, memory, state
        self._heads, self._certainty = heads, certainty

    def with_heads(self, heads: Sequence[int | None]) -> OnnxStepper:
        """The same images with the maps of one head each that the model has; None for the mean of all."""
        places = np.array([_MEAN if head is None else head for head in heads])
        return OnnxStepper(self._decoder, self._images, self._memory, self._state, places, self._certainty)

    @property
    def certainty(self) -> list[float | None]:
        """How sure the model is of what each image shows, in nats, up to 0 (`captioner.model.calibration`);
        None for each image if it does not tell."""
        if self._certainty is None:
            return [None] * self._images
        return [float(value) for value in _fetch(self._certainty)[:, 0]]

    def start(self, beams: int) -> _State:
        return self._state, np.zeros((self._images, beams), dtype=np.int64)

    def choose(self, tokens: Ints, state: _State, request: StepRequest) -> tuple[Choices, Floats, _State]:
        count_step()
        if not self._decoder.chooses:
            log_probs, attention, state = self.step(tokens, state)
            return choose_among(log_probs, request), attention, state
        fetched, attention, state = self._run(tokens, state, CHOSEN, request)
        return Choices(*(fetched[name] for name in CHOSEN)), attention, state

    def step(self, tokens: Ints, state: _State) -> tuple[Floats, Floats, _State]:
        """Read the last tokens, (images, beams): the log-probabilities of all next ones (images, beams,
        vocabulary), the attention (images, beams, cells), and the new state."""
        fetched, attention, state = self._run(tokens, state, ["log_probs"])
        return fetched["log_probs"], attention, state

    def _run(
        self, tokens: Ints, state: _State, wanted: Sequence[str], request: StepRequest | None = None
    ) -> tuple[dict[str, Any], Floats, _State]:
        feeds = self.feeds(tokens, state, request)
        fetched, attention, values = self._decoder.run(feeds, wanted, self._heads)
        return fetched, attention, (values, _unmoved(tokens))

    def feeds(self, tokens: Ints, state: _State, request: StepRequest | None = None) -> dict[str, Any]:
        """The inputs of the graph for one step."""
        values, parents = state
        return self._decoder.feeds(tokens, parents, {**self._memory, **values}, request)

    def reorder(self, state: _State, parents: Ints) -> _State:
        return state[0], parents

    def keep(self, state: _State, images: Ints) -> tuple[OnnxStepper, _State] | None:
        if not self._decoder.graph.on_cpu:
            return None  # a GPU hardly notices a smaller batch, and the memory would have to be copied
        values, parents = state
        kept = {name: value[images] for name, value in values.items()}
        return self.select(images), (kept, parents[images])

    def select(self, images: Ints) -> OnnxStepper:
        place = self._decoder.graph.place
        memory, state = (
            {name: place(_fetch(value)[images]) for name, value in part.items()}
            for part in (self._memory, self._state)
        )
        heads = None if self._heads is None else self._heads[images]
        return OnnxStepper(self._decoder, len(images), memory, state, heads)

    def fetch(self, name: str) -> npt.NDArray[Any] | None:
        """An output of the encoder (images, …), by its name; None if the model does not have it."""
        value = {**self._memory, **self._state}.get(name)
        return None if value is None else _fetch(value)

    @property
    def memory(self) -> dict[str, npt.NDArray[Any]]:
        """A copy of the encoded images, by the decoder's input names, each (images, …)."""
        return {name.removeprefix("memory."): _fetch(value).copy() for name, value in self._memory.items()}

    def with_memory(self, changes: Mapping[str, npt.NDArray[Any]]) -> OnnxStepper:
        """The same images with parts of their memory replaced, to test what the decoder does then. States
        of either stepper are interchangeable."""
        place = self._decoder.graph.place
        memory = self._memory | {f"memory.{name}": place(value) for name, value in changes.items()}
        return OnnxStepper(self._decoder, self._images, memory, self._state, self._heads)


def _fetch(value: Any) -> npt.NDArray[Any]:
    """An array from wherever it is."""
    return value if isinstance(value, np.ndarray) else value.numpy()


def _as_state(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The state after a step, under the names of the inputs of the next one."""
    return {f"state.{name.removeprefix('next.')}": value for name, value in outputs.items()}


def _unmoved(tokens: Ints) -> Ints:
    """The parents of beams that have not been reordered."""
    return np.arange(tokens.shape[1])[None].repeat(len(tokens), axis=0)
