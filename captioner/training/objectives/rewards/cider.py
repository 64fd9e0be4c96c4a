"""How close a caption is to those of people."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from captioner.training.objectives.rewards.base import Reward


class Cider(Reward):
    """CIDEr-D against the image's captions."""

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        return self.data.cider.scores([self.data.rows[image] for image in images], captions)
