"""Captions that say more of what people say, whatever the order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from captioner.metrics.meteor.scorer import ALPHA, DELTA
from captioner.model.vocabulary import END
from captioner.training.objectives.rewards.base import Reward
from captioner.words.english import FUNCTION_WORDS


class SharedWords(Reward):
    """The words shared with the closest human caption, 0 to 1 (`shared_words`)."""

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        references = (self.data.references[self.data.rows[image]] for image in images)
        return np.array([shared_words(*pair) for pair in zip(captions, references, strict=True)])


def shared_words(caption: Sequence[str], references: Iterable[Sequence[str]]) -> float:
    """How well the words of a caption match those of the closest reference, 0 to 1: the F-mean of METEOR
    (Denkowski and Lavie 2014) for exact words in any order. Recall counts more than precision, and content
    words more than function words."""
    said = _weigh(caption)
    best = 0.0
    for reference in references:
        meant = _weigh(reference)
        if shared := sum(min(weight, meant[word]) for word, weight in said.items() if word in meant):
            precision, recall = shared / sum(said.values()), shared / sum(meant.values())
            best = max(best, precision * recall / (ALPHA * precision + (1 - ALPHA) * recall))
    return best


def _weigh(words: Iterable[str]) -> dict[str, float]:
    """Each word's occurrences times its weight; without the end token."""
    counts = Counter(word for word in words if word != END)
    return {word: n * (1 - DELTA if word in FUNCTION_WORDS else DELTA) for word, n in counts.items()}
