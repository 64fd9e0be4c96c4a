"""The rewards of sampled captions in self-critical training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from captioner.errors import DataError
from captioner.metrics.chair import find_mentions
from captioner.metrics.cider import CiderReward
from captioner.metrics.meteor.scorer import ALPHA, DELTA
from captioner.metrics.naming import forms_of, has_phrase
from captioner.model.vocabulary import END
from captioner.training.data import Example, Group, make_image_groups, make_labelled_groups
from captioner.words.english import FUNCTION_WORDS, UNFINISHED
from captioner.words.tokens import tokenize


class Reward(Protocol):
    """Scores captions of training images."""

    @property
    def groups(self) -> Sequence[Group]:
        """The images of an epoch whose captions it can score, all of one kind."""

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        """One for each caption, the words of a sample of image `images[i]`; a caption that was not cut at
        the greatest length ends with the end token."""


class Cider:
    """CIDEr-D against the image's captions, less what the caption would get for any image, and less `objects`
    for each object of COCO that it names and the image does not have (where the data list them); plus `words`
    times `shared_words`."""

    def __init__(
        self,
        examples: Sequence[Example],
        min_references: int,
        samples: int,
        *,
        stage: str,
        contrast: float = 0.0,
        objects: float = 0.0,
        words: float = 0.0,
    ) -> None:
        """Raises `DataError`, naming the stage, if no image has `min_references` captions."""
        self.groups: Sequence[Group] = make_image_groups(examples, min_references, samples)
        if not self.groups:
            raise DataError(f"stage {stage}: no image has {min_references} captions")
        self._contrast, self._objects, self._words = contrast, objects, words
        self._there = {
            index: set(example.image.objects)
            for index, example in enumerate(examples)
            if example.image.objects
        }
        self._captioned = {
            index: row
            for row, index in enumerate(i for i, example in enumerate(examples) if example.image.captions)
        }
        # The end token is scored like a word, so that stopping in mid-sentence does not pay.
        self._references = [
            [[*tokenize(caption), END] for caption in example.image.captions]
            for example in examples
            if example.image.captions
        ]
        self._cider = CiderReward(self._references)

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        rows = [self._captioned[image] for image in images]
        scores = self._cider.scores(rows, captions)
        if self._contrast:
            scores -= self._contrast * self._cider.typicality(captions)
        if self._objects:
            scores -= self._objects * np.array(
                [self._absent(*said) for said in zip(images, captions, strict=True)]
            )
        if self._words:
            scores += self._words * np.array(
                [shared_words(said, self._references[row]) for row, said in zip(rows, captions, strict=True)]
            )
        return scores

    def _absent(self, image: int, caption: Sequence[str]) -> int:
        """How often the caption names an object that is not there."""
        there = self._there.get(image)
        if there is None:
            return 0
        return sum(mention.category not in there for mention in find_mentions(caption))


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


class Naming:
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

    def __init__(self, examples: Sequence[Example], factor: float, samples: int) -> None:
        """`factor` of the reward; at 0 there are no groups."""
        self._factor = factor
        self._words = {
            index: [tuple(tokenize(word)) for word in example.image.words]
            for index, example in enumerate(examples)
            if example.image.words
        }
        self._names = {word for own in self._words.values() for word in own[0]}
        self._pairs = {
            pair
            for example in (examples if factor else ())
            for text in (*example.image.captions, *example.image.words)
            for pair in pairwise(tokenize(text))
        }
        frequent = Counter(
            word
            for example in (examples if factor else ())
            for caption in example.image.captions
            for word in tokenize(caption)
        )
        self._background = {word for word, count in frequent.items() if count >= self.FREQUENT}
        self._things = set().union(*(forms_of(own[-1:]) for all_ in self._words.values() for own in all_))
        self.groups: Sequence[Group] = make_labelled_groups(examples, samples) if factor else []

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        return np.array(
            [self._factor * self._score(*said) for said in zip(images, captions, strict=True)],
            dtype=np.float64,
        )

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
