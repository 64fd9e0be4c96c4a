"""Objects that are not in the photo cost (Rohrbach et al. 2018, arXiv:1809.02156)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from captioner.metrics.chair import find_mentions
from captioner.training.objectives.rewards.base import Reward


class AbsentObjects(Reward):
    """-1 for each object of COCO that the caption names and the image does not have, where the data list its
    objects."""

    def scores(self, images: Sequence[int], captions: Sequence[Sequence[str]]) -> npt.NDArray[np.float64]:
        absent = [self._absent(image, caption) for image, caption in zip(images, captions, strict=True)]
        return -np.array(absent, dtype=np.float64)

    def _absent(self, image: int, caption: Sequence[str]) -> int:
        objects = self.data.examples[image].image.objects
        if not objects:
            return 0
        return sum(mention.category not in objects for mention in find_mentions(caption))
