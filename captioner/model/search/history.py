"""The record of a search: finished hypotheses, and the steps from which they are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from captioner.model.search.choices import Floats, Ints


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished caption in token ids."""

    tokens: tuple[int, ...]
    """Without start and end."""
    log_probs: tuple[float, ...]
    """Log-probability of each token, and finally of the end token."""
    attention: tuple[Floats, ...]
    """(cells,) for each token."""

    @property
    def log_prob(self) -> float:
        return float(sum(self.log_probs))


@dataclass(frozen=True, slots=True)
class Ended:
    """A hypothesis that took the end token."""

    score: float
    length: int
    """Words before the end token."""
    beam: int
    """The row of its last word."""
    end_log_prob: float


class Finished:
    """The ended hypotheses of one image."""

    def __init__(self, wanted: int, alpha: float, *, greedy: bool) -> None:
        """The best `wanted` of them will be read."""
        self.wanted, self.alpha, self._greedy = wanted, alpha, greedy
        self.ended: list[Ended] = []

    def add(self, log_prob: float, length: int, beam: int, end_log_prob: float) -> None:
        score = log_prob / (length + 1) ** self.alpha
        self.ended.append(Ended(score, length, beam, end_log_prob))

    def replace_best(self, log_prob: float, length: int, beam: int, end_log_prob: float) -> None:
        """Replace the best hypothesis by a part of it, unless that part has already finished."""
        self.ended.remove(self.best(1)[0])
        if not any((ended.length, ended.beam) == (length, beam) for ended in self.ended):
            self.add(log_prob, length, beam, end_log_prob)

    def best(self, count: int) -> list[Ended]:
        return sorted(self.ended, key=lambda ended: -ended.score)[:count]

    @property
    def to_beat(self) -> float:
        """The score that a hypothesis must exceed to enter the best `wanted`. A greedy one that has ended is
        never replaced."""
        if len(self.ended) < self.wanted:
            return -np.inf
        return np.inf if self._greedy else self.best(self.wanted)[-1].score


class History:
    """Attention maps and choices of every step, for all rows of the images still in the batch."""

    def __init__(self) -> None:
        self.attention: list[Floats] = []
        self.ends: list[Floats] = []
        self.tokens: list[Ints] = []
        self.parents: list[Ints] = []
        self.log_probs: list[Floats] = []
        self.sequences: Ints | None = None
        """The tokens so far of every live row, (images, rows, length); None before the first."""

    def add_step(self, attention: Floats, ends: Floats) -> None:
        """The maps (images, rows, cells) and the end token's log-probabilities (images, rows) of a step."""
        self.attention.append(attention)
        self.ends.append(ends)

    def add_choices(self, tokens: Ints, parents: Ints, log_probs: Floats) -> None:
        """Add the choices of a step and the rows that they continue: (images, rows) each."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        self.log_probs.append(log_probs)
        if self.sequences is None:
            self.sequences = tokens[..., None]
        else:
            before = self.sequences[np.arange(len(parents))[:, None], parents]
            self.sequences = np.concatenate([before, tokens[..., None]], axis=-1)

    def keep(self, images: Ints) -> None:
        """Keep only these images, by their indices."""
        assert self.sequences is not None
        self.attention = [value[images] for value in self.attention]
        self.ends = [value[images] for value in self.ends]
        self.tokens = [value[images] for value in self.tokens]
        self.parents = [value[images] for value in self.parents]
        self.log_probs = [value[images] for value in self.log_probs]
        self.sequences = self.sequences[images]

    def cut(self, image: int, ended: Ended, limit: int) -> tuple[float, int, int, float] | None:
        """The arguments of `Finished.add` for a hypothesis of `limit` words, cut after the word where its end
        was most likely; None if that is its end already, or if it is shorter."""
        if ended.length < limit:
            return None
        beam, steps = ended.beam, []
        for step in range(limit - 1, -1, -1):
            steps.append((float(self.ends[step + 1][image, beam]), step + 1, beam))
            beam = int(self.parents[step][image, beam])
        end, length, beam = max(steps, key=lambda step: step[0])
        if length == limit:
            return None
        words = self.read(image, Ended(0.0, length, beam, end))
        return words.log_prob, length, beam, end

    def read(self, image: int, ended: Ended) -> Hypothesis:
        """Follow the links back from the last word.

        The map of a word is the one of the step that chose it, in the row of the beam it continued.
        """
        beam = ended.beam
        tokens, log_probs, attention = [], [ended.end_log_prob], []
        for step in range(ended.length - 1, -1, -1):
            tokens.append(int(self.tokens[step][image, beam]))
            log_probs.append(float(self.log_probs[step][image, beam]))
            beam = int(self.parents[step][image, beam])
            attention.append(self.attention[step][image, beam].copy())  # not a view, which would keep all
        return Hypothesis(tuple(tokens[::-1]), tuple(log_probs[::-1]), tuple(attention[::-1]))
