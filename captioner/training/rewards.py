"""What self-critical training pays a sampled caption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from captioner.errors import DataError
from captioner.metrics.cider import CiderReward
from captioner.model.vocabulary import END, tokenize
from captioner.training.data import Example, Group, make_image_groups


class Reward(Protocol):
    """Scores captions of training images."""

    @property
    def groups(self) -> Sequence[Group]:
        """The images of an epoch that it can score captions of, all of one kind."""

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        """One for each caption, the words of a sample of image `images[i]`; a caption that was not cut at
        the greatest length ends with the end token."""


class Cider:
    """CIDEr-D against the image's captions, less what the caption would get for any image."""

    def __init__(
        self, examples: Sequence[Example], min_references: int, samples: int, contrast: float, stage: str
    ) -> None:
        """Raises `DataError`, naming the stage, if no image has `min_references` captions."""
        self.groups: Sequence[Group] = make_image_groups(examples, min_references, samples)
        if not self.groups:
            raise DataError(f"stage {stage}: no image has {min_references} captions")
        self._contrast = contrast
        self._captioned = {
            index: row
            for row, index in enumerate(i for i, example in enumerate(examples) if example.image.captions)
        }
        # The end token is scored like a word, so that stopping in mid-sentence does not pay.
        self._cider = CiderReward(
            [
                [[*tokenize(caption), END] for caption in example.image.captions]
                for example in examples
                if example.image.captions
            ]
        )

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        scores = self._cider.scores([self._captioned[image] for image in images], captions)
        if self._contrast:
            scores -= self._contrast * self._cider.typicality(captions)
        return scores
