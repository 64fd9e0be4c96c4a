"""One batch on the engine: options brought together, and a batch that fails for some image split."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Sequence

import numpy as np

from captioner.errors import ModelOutputError, clip
from captioner.options import CaptionOptions
from captioner.protocol import Outcome, PixelModel, Pixels
from captioner.results import Caption
from captioner_server.errors import BusyError

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 1.0
_OUT_OF_MEMORY = re.compile(
    r"out of memory|failed to allocate|bad_?alloc|bad allocation|_ALLOC_FAILED|MemoryAllocation",
    re.IGNORECASE,
)


def search_key(options: CaptionOptions) -> CaptionOptions:
    """Equal for options that one batch can serve: whether maps are returned does not change the search, nor
    how many alternatives are, unless they need a wider one."""
    if not options.attention:
        options = dataclasses.replace(options, attention_size=None, attention_head=None)
    wide = options.alternatives if options.alternatives >= (options.beam_size or 1) else 0
    return dataclasses.replace(options, alternatives=wide, attention=True)


def compute(engine: PixelModel, pixels: Sequence[Pixels], options: Sequence[CaptionOptions]) -> list[Outcome]:
    """The outcomes of a batch, each with its own options, which must have the same `search_key`.

    Where the memory does not suffice, or the model computes no finite numbers, the halves are tried, so that
    an image that fails alone fails none but itself.
    Raises whatever else the engine raises."""
    try:
        captions = engine.caption_pixels(np.stack(pixels), _together(options))
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
    return [_as_asked(caption, one) for caption, one in zip(captions, options, strict=True)]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of the engine means that memory, of the GPU or the system, did not suffice."""
    return isinstance(error, MemoryError) or bool(_OUT_OF_MEMORY.search(str(error)))


def _together(options: Sequence[CaptionOptions]) -> CaptionOptions:
    """Options that give each image at least what it asked for."""
    return dataclasses.replace(
        options[0],
        alternatives=max(one.alternatives for one in options),
        attention=any(one.attention for one in options),
        attention_size=next((one.attention_size for one in options if one.attention), None),
        attention_head=next((one.attention_head for one in options if one.attention), None),
    )


def _as_asked(caption: Caption, options: CaptionOptions) -> Caption:
    """The caption without what only others in its batch asked for."""
    words = caption.words
    if not options.attention:
        words = tuple(dataclasses.replace(word, attention=None) for word in words)
    return dataclasses.replace(
        caption, words=words, alternatives=caption.alternatives[: options.alternatives]
    )
