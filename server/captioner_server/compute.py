"""Captions one batch; a batch that fails because of one image is split."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import numpy as np

from captioner.errors import ModelOutputError, clip
from captioner.options import CaptionOptions
from captioner.protocol import Outcome, PixelModel, Pixels
from captioner_server.errors import BusyError

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 1.0
_OUT_OF_MEMORY = re.compile(
    r"out of memory|failed to allocate|bad_?alloc|bad allocation|_ALLOC_FAILED|MemoryAllocation",
    re.IGNORECASE,
)


def compute(engine: PixelModel, pixels: Sequence[Pixels], options: Sequence[CaptionOptions]) -> list[Outcome]:
    """The outcomes of a batch, each image with its own options.

    If memory runs out or the model's output is not finite, the halves are tried, so that only the images that
    cause it fail. Raises whatever else the model raises."""
    try:
        return list(engine.caption_pixels(np.stack(pixels), options))
    except Exception as error:
        if not (isinstance(error, ModelOutputError) or is_out_of_memory(error)):
            raise
        log.warning("a batch failed", extra={"fields": {"images": len(pixels), "reason": clip(str(error))}})
        if len(pixels) == 1:
            if isinstance(error, ModelOutputError):
                return [error]
            return [BusyError("the model has no memory left for the image", _RETRY_AFTER_S)]
        half = len(pixels) // 2
        return [
            *compute(engine, pixels[:half], options[:half]),
            *compute(engine, pixels[half:], options[half:]),
        ]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of the model means that the memory of the GPU or the system ran out."""
    return isinstance(error, MemoryError) or bool(_OUT_OF_MEMORY.search(str(error)))
