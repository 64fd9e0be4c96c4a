"""What a search requests of a decoder step, and what it gets."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

NEVER = np.float32(-np.inf)


class StepRequest(NamedTuple):
    """The continuations that a search needs from one step."""

    best: int
    """Number of continuations of each row; there are fewer if the vocabulary is smaller."""
    forbidden: Ints
    """(images, rows, any): tokens that may not follow each row; duplicates are allowed."""
    tracked: Ints
    """(any,): tokens whose log-probabilities are returned in any case, even if forbidden or improbable."""


class Choices(NamedTuple):
    """The result of a `StepRequest`."""

    log_probs: Floats
    """(images, rows, count): of the best continuations, best first; -inf where fewer are allowed."""
    tokens: Ints
    """(images, rows, count)"""
    tracked: Floats
    """(images, rows, tracked)"""


def choose_among(log_probs: Floats, request: StepRequest) -> Choices:
    """The choices among all tokens by their log-probabilities, (images, rows, vocabulary): for decoders
    whose graph does not choose."""
    allowed = log_probs.copy()
    np.put_along_axis(allowed, request.forbidden, NEVER, axis=-1)
    count = min(request.best, allowed.shape[-1])
    index = np.argpartition(allowed, -count, axis=-1)[..., -count:]
    values = np.take_along_axis(allowed, index, axis=-1)
    order = np.lexsort((index, -values), axis=-1)  # ties go to the lower index, whatever the batch
    return Choices(
        np.take_along_axis(values, order, axis=-1),
        np.take_along_axis(index, order, axis=-1),
        log_probs[..., request.tracked],
    )
