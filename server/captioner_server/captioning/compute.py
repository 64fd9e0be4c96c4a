"""Captions one batch; a batch that fails because of one image is split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from captioner.errors import DeviceError
from captioner.options import CaptionOptions
from captioner.pipeline import caption_split
from captioner.protocol import Outcome, PixelModel, Pixels
from captioner.results import Caption
from captioner_server.errors import BusyError

_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Computed:
    """A caption and what it took."""

    caption: Caption
    queue_s: float
    compute_s: float
    batch_size: int
    """Images in the batch that this one was in."""


def compute(model: PixelModel, pixels: Sequence[Pixels], options: Sequence[CaptionOptions]) -> list[Outcome]:
    """The outcomes of a batch, each image with its own options, as `caption_split`. An image without memory
    for it can be tried again. Raises whatever the model raises."""
    return [
        BusyError(str(one), _RETRY_AFTER_S) if isinstance(one, DeviceError) else one
        for one in caption_split(model, pixels, options)
    ]
