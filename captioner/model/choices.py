"""Questions of a search to a decoder step, and the answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

NEVER = np.float32(-np.inf)


class Question(NamedTuple):
    """What is wanted of the next tokens."""

    wanted: int
    """Continuations of each row; there are fewer where the vocabulary is smaller."""
    forbidden: Ints
    """(images, rows, any): tokens that may not follow each row; the same one may stand there twice."""
    asked: Ints
    """(any,): tokens whose log-probabilities are wanted whatever they are, also of forbidden ones."""


class Choices(NamedTuple):
    """The answer."""

    log_probs: Floats
    """(images, rows, count): of the best continuations, best first; -inf where no more are allowed."""
    tokens: Ints
    """(images, rows, count)"""
    asked: Floats
    """(images, rows, asked)"""


def choose_among(log_probs: Floats, question: Question) -> Choices:
    """The answer from the log-probabilities of all tokens, (images, rows, vocabulary): for decoders that
    do not find it themselves."""
    allowed = log_probs.copy()
    np.put_along_axis(allowed, question.forbidden, NEVER, axis=-1)
    count = min(question.wanted, allowed.shape[-1])
    index = np.argpartition(allowed, -count, axis=-1)[..., -count:]
    values = np.take_along_axis(allowed, index, axis=-1)
    order = np.lexsort((index, -values), axis=-1)  # ties go to the lower index, whatever the batch
    return Choices(
        np.take_along_axis(values, order, axis=-1),
        np.take_along_axis(index, order, axis=-1),
        log_probs[..., question.asked],
    )
