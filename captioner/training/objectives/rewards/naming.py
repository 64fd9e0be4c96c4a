"""Whether captions name what labelled photos show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from captioner.metrics.naming import forms_of, has_phrase
from captioner.model.vocabulary import END
from captioner.training.data.batches import NAMED
from captioner.training.objectives.rewards.base import Reward, RewardData
from captioner.words.english import UNFINISHED
from captioner.words.tokens import tokenize


class Naming(Reward):
    """Whether a caption names what a labelled photo shows.

    EXACT for its first word, RIGHT for another one. A caption that is no sentence gets less: for a bad
    ending, for a length outside LENGTHS, for repeated words, and for neighbouring names that no caption or
    label has ("a seal dolphin"). So does one that guesses several times ("a crab on a octopus in a shrimp"):
    for a right name after the first, and for a wrong one, unless captions say it so often that it may well
    stand in the background.
    """

    EXACT, RIGHT = 0.9, 0.6
    BAD_ENDING, WORD, REPEATED, UNSEEN_PAIR = 0.5, 0.06, 0.05, 0.25
    RIGHT_AGAIN, WRONG = 0.35, 0.45
    LENGTHS = range(7, 14)
    FREQUENT = 400
    """Occurrences in captions from which a name may well stand in the background."""

    kind = NAMED

    def __init__(self, data: RewardData) -> None:
        super().__init__(data)
        self._words = {
            index: [tuple(tokenize(word)) for word in example.image.words]
            for index, example in enumerate(data.examples)
            if example.image.words
        }
        self._names = {word for own in self._words.values() for word in own[0]}
        texts = [(*example.image.captions, *example.image.words) for example in data.examples]
        self._pairs = {pair for own in texts for text in own for pair in pairwise(tokenize(text))}
        said = Counter(word for own in data.references for caption in own for word in caption)
        self._background = {word for word, count in said.items() if count >= self.FREQUENT}
        self._things = set().union(*(forms_of(own[-1:]) for all_ in self._words.values() for own in all_))

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        return np.array([self._score(*pair) for pair in zip(images, captions, strict=True)], dtype=np.float64)

    def _score(self, image: int, caption: Sequence[str]) -> float:
        words = [word for word in caption if word != END]
        exact, *others = self._words[image]
        score = 0.0
        if has_phrase(words, exact):
            score = self.EXACT
        elif any(has_phrase(words, other) for other in others):
            score = self.RIGHT
        if not words or words[-1] in UNFINISHED or caption[-1] != END:
            score -= self.BAD_ENDING
        nearest = min(max(len(words), self.LENGTHS.start), self.LENGTHS.stop - 1)
        score -= self.WORD * abs(len(words) - nearest)
        unseen = [
            pair for pair in pairwise(words) if self._names.issuperset(pair) and pair not in self._pairs
        ]
        score -= self.UNSEEN_PAIR * len(unseen)
        right = set().union(*(forms_of((part,)) for own in self._words[image] for part in own))
        named = [word for word in words if not forms_of((word,)).isdisjoint(self._things)]
        again = [word for word in named if not forms_of((word,)).isdisjoint(right)][1:]
        wrong = [
            word for word in named if forms_of((word,)).isdisjoint(right) and word not in self._background
        ]
        score -= self.RIGHT_AGAIN * len(again) + self.WRONG * len(wrong)
        return score - self.REPEATED * sum(n - 1 for word, n in Counter(words).items() if word != "a")
