"""One forward pass of the model in training, which all objectives of a stage share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from captioner.nn.attention import drawn_cells
from captioner.nn.decoder import Tensors
from captioner.nn.model import CaptionModel
from captioner.training.data import Batch


class TeacherForced(NamedTuple):
    """The decoder's output for the captions of a batch."""

    logits: Tensor
    """(batch, captions, length, vocabulary)"""
    attention: Tensor
    """(batch, captions, length, cells)"""
    drawn: list[Tensor]
    """Log-probabilities of the cells that hard attention sampled (`drawn_cells`)."""


@dataclass
class Step:
    """A batch and the model's outputs for it. The decoder runs when an objective first needs it."""

    model: CaptionModel
    batch: Batch
    captions: Tensor
    """int64 (batch, captions, length), on the device, from the start token."""
    features: list[Tensor]
    """Output of the frozen segments, enlarged: float (batch, channels, rows, columns) of each stage, or
    [uint8 (batch, height, width, 3)]."""
    photo_mask: Tensor | None
    """bool (batch, cells): the cells of the photo in a letterboxed one; None for all."""
    part: Tensor | None
    """float (batch, 2, 3): the part of the photo that is enlarged (`captioner.training.zoom`), or None."""
    stages: list[Tensor]
    """Output of the whole backbone: (batch, channels, rows, columns) of each stage."""
    grid: Tensor
    """(batch, cells, features), with nothing hidden."""
    memory: Tensors
    """As from `Decoder.prepare` for the partly hidden grid; its "mask" are the remaining cells."""
    state: Tensors

    @property
    def tokens(self) -> Tensor:
        """Inputs of the decoder: int64 (batch, captions, length)."""
        return self.captions[:, :, :-1]

    @property
    def targets(self) -> Tensor:
        """The words to predict: int64 (batch, captions, length), padded."""
        return self.captions[:, :, 1:]

    @cached_property
    def forced(self) -> TeacherForced:
        with drawn_cells(self.model.decoder) as drawn:
            logits, attention = self.model.decoder(self.tokens, self.memory, self.state)
        return TeacherForced(logits, attention, list(drawn))

    @property
    def logits(self) -> Tensor:
        return self.forced.logits

    @property
    def attention(self) -> Tensor:
        return self.forced.attention
