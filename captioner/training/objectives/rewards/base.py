"""The interface of all rewards: a sampled caption is rewarded with a weighted sum of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from captioner.metrics.cider import CorpusCider
from captioner.model.vocabulary import END
from captioner.training.data.batches import PHOTOS
from captioner.training.data.examples import Example
from captioner.words.tokens import tokenize


class RewardData:
    """What rewards compare captions with, computed once for all of them."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples
        captioned = [index for index, example in enumerate(examples) if example.image.captions]
        self.rows = {index: row for row, index in enumerate(captioned)}
        """The row in `references` of each example that has captions."""
        # The end token is scored like a word, so that stopping in mid-sentence does not pay.
        self.references = [
            [[*tokenize(caption), END] for caption in examples[index].image.captions] for index in captioned
        ]
        """The words of the captions of each example that has some."""

    @cached_property
    def cider(self) -> CorpusCider:
        return CorpusCider(self.references)


class Reward(ABC):
    """Scores captions of training images."""

    kind: ClassVar[str] = PHOTOS
    """The images whose captions it scores: `PHOTOS`, which have captions, or `NAMED`, which have labels."""

    def __init__(self, data: RewardData) -> None:
        self.data = data

    @abstractmethod
    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        """One for each caption, the words of a sample of example `images[i]`; a caption that was not cut at
        the greatest length ends with the end token."""


class WeightedRewards:
    """The sum of several rewards, each times its weight."""

    def __init__(self, rewards: Sequence[tuple[float, Reward]]) -> None:
        self.rewards = rewards

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        """As `Reward.scores`."""
        total = np.zeros(len(captions))
        for weight, reward in self.rewards:
            total += weight * reward.scores(images, captions)
        return total
