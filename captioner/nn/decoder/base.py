"""The step contract of all decoders, which the search and the exported graphs rely on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from captioner.nn.attention import Attention
from captioner.nn.decoder.bonus import Bonuses
from captioner.nn.decoder.embedding import TiedEmbedding

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """Sizes that decoders are built with; those without such a part ignore `layers` and `heads`."""

    vocabulary: int
    """Number of words."""
    features: int
    """Features of a cell of the grid."""
    hidden: int
    embedding: int
    dropout: float = 0.0
    layers: int = 1
    heads: int = 8
    """Heads of the attention among words."""
    mean_weight: float = 1.0
    """Factor of the photo's mean in the input of an LSTM."""


class Step(NamedTuple):
    """What one step of a decoder returns."""

    logits: Tensor
    """(batch, beams, vocabulary)"""
    state: Tensors
    """Each (batch, beams, …), the input of the next step."""
    attention: Tensor
    """(batch, beams, cells); sums to 1, or to 1 minus the share of a visual sentinel."""
    heads: Tensor | None = None
    """(batch, beams, heads, cells): the maps whose mean is `attention`; None for decoders with one head."""


class Decoder(nn.Module, ABC):
    """Predicts one word at a time with attention over a grid.

    Several hypotheses (beams, or the reference captions in training) of one image share its memory.
    """

    has_sentinel = False
    """Whether part of the attention may go to no cell."""
    heads = 1
    """Number of maps per word; their mean is its attention."""
    detects: ClassVar[bool] = False
    """Whether it detects words in the mean of the photo, as the bonuses and the objective `bag_of_words`
    need."""
    embedding: TiedEmbedding

    def __init__(self, attention: Attention, sizes: DecoderSizes) -> None:
        super().__init__()
        self.has_sentinel, self.heads = attention.has_sentinel, attention.heads
        self.bonus: Bonuses | None = None
        """What is added to the scores of words; may be set for a decoder that `detects`."""

    @abstractmethod
    def prepare(
        self, grid: Tensor, mask: Tensor | None = None, deepest: Tensor | None = None
    ) -> tuple[Tensors, Tensors]:
        """Compute what is needed once per image.

        `grid` (batch, cells, features), `mask` bool (batch, cells) or None, `deepest` (batch, channels, rows,
        columns) the encoder's deepest output, which class evidence needs. Returns the memory, each
        (batch, …), and the state before the first word, each (batch, 1, …): one beam, which the caller
        repeats. The memory's "mask", bool (batch, cells), marks the cells that may be attended to: a caller
        can hide cells from the decoder through it, in PyTorch and in an exported graph alike.
        """

    @abstractmethod
    def step(self, tokens: Tensor, memory: Tensors, state: Tensors) -> Step:
        """Read the last word of each hypothesis, int64 (batch, beams), and predict the next."""

    def forward(self, tokens: Tensor, memory: Tensors, state: Tensors) -> tuple[Tensor, Tensor]:
        """Teacher forcing: all steps of known captions, int64 (batch, captions, length) from the start token.

        Returns logits (batch, captions, length, vocabulary) and attention (batch, captions, length, cells).
        A decoder whose steps can be computed at once overrides this; the result is the same. It does not
        include the bonus of a checklist, which `as_searched` adds.
        """
        state = expand_beams(state, tokens.shape[1])
        steps = []
        for position in range(tokens.shape[2]):
            steps.append(self.step(tokens[:, :, position], memory, state))
            state = steps[-1].state
        return (
            torch.stack([step.logits for step in steps], dim=2),
            torch.stack([step.attention for step in steps], dim=2),
        )

    def detect(self, memory: Tensors) -> Tensor:
        """Logits (batch, vocabulary) of the words that the image as a whole suggests, in no order; for a
        decoder that `detects`."""
        raise TypeError(f"{type(self).__name__} detects no words")

    @property
    def detectors(self) -> list[nn.Module]:
        """The layers, besides the embedding, that detect words in the mean of the photo."""
        return []

    def as_searched(self, logits: Tensor, tokens: Tensor, memory: Tensors, state: Tensors) -> Tensor:
        """The logits of `forward` with the bonuses of a checklist, as a search has them."""
        return logits if self.bonus is None else self.bonus.searched_all(logits, tokens, memory, state)


def expand_beams(state: Tensors, beams: int) -> Tensors:
    """A state of one beam (batch, 1, …) repeated for `beams` hypotheses."""
    return {name: value.expand(-1, beams, *value.shape[2:]) for name, value in state.items()}


def every_cell(grid: Tensor) -> Tensor:
    """The mask of a grid (batch, cells, features) without padding: bool (batch, cells), all True."""
    return torch.ones(grid.shape[:2], dtype=torch.bool, device=grid.device)
