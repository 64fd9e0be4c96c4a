"""Captions that suit many photos pay less, so that captions become specific."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from captioner.training.objectives.rewards.base import Reward


class Contrast(Reward):
    """Minus the caption's mean CIDEr-D as a caption of any image."""

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        return -self.data.cider.typicality(captions)
