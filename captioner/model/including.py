"""Constrained beam search: captions that must hold given words (Anderson et al. 2017, arXiv:1612.00576).

Hypotheses are kept apart by which of the words they hold already. Each such group has a beam of its own, so
that a hypothesis that has said an unlikely word is never pushed out by likelier ones that have not, and only
those that hold every word may end. The decoder is not changed, and needs no training for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from captioner.model.vocabulary import Vocabulary

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Best = tuple[Floats, Ints, Ints]
"""(images, count) each, best first: scores, parent rows and tokens."""

_NEVER = np.float32(-np.inf)


class Required:
    """The words that a caption must hold, each given as the token ids of which one is enough.

    Rows of the search are group by group: group g, whose bits tell which words are there, has the rows from
    g * beams on. The last group holds all words.
    """

    def __init__(self, words: Sequence[Sequence[int]] = ()) -> None:
        self.groups = 2 ** len(words)
        ids = sorted({token for forms in words for token in forms})
        self._tokens = np.array(ids, dtype=np.int64)
        self._bits = np.array(
            [sum(1 << bit for bit, forms in enumerate(words) if token in forms) for token in ids],
            dtype=np.int64,
        )

    def best(self, scores: Floats, count: int) -> list[Best]:
        """The best `count` continuations into each group, of (images, groups * beams, vocabulary) scores."""
        images, rows, vocabulary = scores.shape
        if self.groups == 1:
            return [top(scores, count)]
        grid = scores.reshape(images, self.groups, rows // self.groups, vocabulary)
        return [self._into(group, grid, count) for group in range(self.groups)]

    def _into(self, group: int, grid: Floats, count: int) -> Best:
        beams = grid.shape[2]
        own = grid[:, group].copy()
        own[..., self._tokens[(self._bits & ~group) != 0]] = _NEVER  # these lead into other groups
        if group != self.groups - 1:
            own[..., Vocabulary.end_id] = _NEVER
        values, parents, tokens = top(own, count)
        parts = [(values, parents + group * beams, tokens)]
        for before in range(group):  # words are only added
            leading = self._tokens[(before | self._bits) == group]
            if len(leading):
                parts.append(_moves(grid[:, before][..., leading], leading, before * beams))
        values, parents, tokens = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
        order = np.lexsort((tokens, parents, -values), axis=1)[:, :count]
        return tuple(np.take_along_axis(part, order, axis=1) for part in (values, parents, tokens))  # type: ignore[return-value]


def _moves(scores: Floats, leading: Ints, first_row: int) -> Best:
    """Every continuation of the rows of a group, (images, beams, tokens), with these tokens."""
    images, beams, count = scores.shape
    parents = np.repeat(np.arange(beams) + first_row, count)
    tokens = np.tile(leading, beams)
    shape = (images, beams * count)
    return scores.reshape(shape), np.broadcast_to(parents, shape), np.broadcast_to(tokens, shape)


def top(scores: Floats, count: int) -> Best:
    """The best `count` continuations of each image, of (images, rows, vocabulary) scores."""
    images, _, vocabulary = scores.shape
    flat = scores.reshape(images, -1)
    count = min(count, flat.shape[1])
    index = np.argpartition(-flat, count - 1, axis=1)[:, :count]
    values = np.take_along_axis(flat, index, axis=1)
    order = np.lexsort((index, -values), axis=1)  # ties go to the lower index, whatever the batch
    index = np.take_along_axis(index, order, axis=1)
    return np.take_along_axis(values, order, axis=1), index // vocabulary, index % vocabulary
