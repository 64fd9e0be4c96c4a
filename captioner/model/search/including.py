"""Constrained beam search: captions that must contain given words (Anderson et al. 2017, arXiv:1612.00576).

Hypotheses are grouped by the required words that they contain. Each group has its own beam, so a hypothesis
with an unlikely required word never competes with likelier hypotheses without that word. A hypothesis may end
only if it contains every required word. The decoder needs no changes and no extra training.

The decoder's score chooses the place of a word. Alone it would often append one ("a counter and a bowl
bottle"), as nouns are likely to end a caption: `Misfits` are places that are no choice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from captioner.model.search.choices import NEVER, Choices, Floats, Ints
from captioner.model.vocabulary import Vocabulary

Bools = npt.NDArray[np.bool_]
Misfits = Callable[[int], Bools]
"""After which words of the vocabulary a token may not be placed: bool (vocabulary,)."""


class Candidates(NamedTuple):
    """Continuations of the hypotheses of each image, (images, count) each."""

    scores: Floats
    """Log-probability of the whole hypothesis."""
    rows: Ints
    """That they continue."""
    tokens: Ints
    log_probs: Floats
    """Log-probability of the token alone."""

    def joined(self, *others: Candidates) -> Candidates:
        """These, then others of the same images."""
        if not others:
            return self
        parts: Iterable[Any] = zip(self, *others, strict=True)
        return Candidates._make(np.concatenate(part, axis=1) for part in parts)

    def best(self, count: int) -> Candidates:
        """The best ones, best first; of equal ones the first."""
        return self.take(np.argsort(-self.scores, axis=1, kind="stable")[:, :count])

    def take(self, places: Ints) -> Candidates:
        """Those at the places (images, any) among those of each image."""
        images = np.arange(len(places))[:, None]
        return Candidates._make(part[images, places] for part in self)


class Required:
    """The words that captions must contain, as many for each image of a batch, each given as the token ids of
    which one is enough.

    Rows of the search are group by group: group g, whose bits tell which words are there, has the rows from
    g * beams on. The last group holds all words.
    """

    def __init__(
        self, words: Sequence[Sequence[Sequence[int]]], beams: int, misfits: Misfits | None = None
    ) -> None:
        """`words` of each image."""
        self.beams = beams
        self.groups = 2 ** len(words[0])
        ids = sorted({token for own in words for forms in own for token in forms})
        self.tokens: Ints = np.array(ids, dtype=np.int64)
        """All forms of the words of all images."""
        self.tracked: Ints = np.array([Vocabulary.end_id, *ids], dtype=np.int64)
        """The tokens that each step reports on: the end, then `tokens`."""
        self._misfits = None if misfits is None else np.stack([*map(misfits, ids)]) if ids else None
        self._bits: Ints = np.array(
            [
                [sum(1 << bit for bit, forms in enumerate(own) if token in forms) for token in ids]
                for own in words
            ],
            dtype=np.int64,
        )  # (images, tokens); 0 where another image needs the token
        held = np.arange(self.groups)[:, None]
        leaving = np.where(self._bits[:, None] & ~held, self.tokens, Vocabulary.pad_id)
        ends = np.where(held < self.groups - 1, Vocabulary.end_id, Vocabulary.pad_id)
        self.forbidden: Ints = np.concatenate(
            [np.broadcast_to(ends, (len(words), self.groups, 1)), leaving], axis=2
        ).repeat(beams, axis=1)
        """(images, rows, any): the tokens that lead from a row into another group, and the end where a word
        is missing, filled up with padding."""

    def keep(self, images: Ints) -> Required:
        """The same for these images only, by their indices."""
        kept = copy.copy(self)
        kept._bits, kept.forbidden = self._bits[images], self.forbidden[images]
        return kept

    def groups_of(
        self, before: Ints, totals: Floats, choices: Choices, barred: Ints, full: Bools
    ) -> list[Candidates]:
        """The best 2 * beams continuations into each group.

        `totals` (images, rows) are the scores of the hypotheses, `before` their last tokens, `choices`
        continuations that stay in the group of their row, with the log-probabilities of `tracked` tokens. Of
        `tokens`, those in `barred` (images, rows, any) may not follow, and none may for images that are
        `full`."""
        count = 2 * self.beams
        rows = np.arange(totals.shape[1])
        own = _flatten(totals, rows, choices.tokens, choices.log_probs)
        if self.groups == 1:
            return [own.best(count)]
        blocked = (self.tokens[:, None] == barred[..., None, :]).any(axis=-1) | full[:, None, None]
        if self._misfits is not None:
            blocked = blocked | np.moveaxis(self._misfits[:, before], 0, -1)
        moves = np.where(blocked, NEVER, choices.tracked[..., 1:])
        per_group = own.scores.shape[1] // self.groups
        found = []
        for group in range(self.groups):
            span = slice(group * per_group, (group + 1) * per_group)
            parts = [Candidates._make(part[:, span] for part in own)]
            for fewer in range(group):  # words are only added
                leading = (fewer | self._bits) == group
                if (of_some := leading.any(axis=0)).any():
                    begin, end = fewer * self.beams, (fewer + 1) * self.beams
                    step = np.where(leading[:, None, of_some], moves[:, begin:end, of_some], NEVER)
                    tokens = np.broadcast_to(self.tokens[of_some], step.shape)
                    parts.append(_flatten(totals[:, begin:end], rows[begin:end], tokens, step))
            found.append(parts[0].joined(*parts[1:]).best(count))
        return found


def _flatten(totals: Floats, rows: Ints, tokens: Ints, log_probs: Floats) -> Candidates:
    """Tokens (images, rows, count) after these rows, as candidates (images, rows * count)."""
    images = len(totals)
    spread = np.empty(log_probs.shape, dtype=np.int64)
    spread[:] = rows[:, None]
    scores = totals[:, :, None] + log_probs
    return Candidates._make(part.reshape(images, -1) for part in (scores, spread, tokens, log_probs))
