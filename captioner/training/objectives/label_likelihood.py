"""Likelihood of captions of which only the beginning is known: what a labelled photo shows."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from captioner.training.data import LABELS, Group
from captioner.training.naming import beginning, draw, known_words
from captioner.training.objectives.base import Objective, Run
from captioner.training.objectives.cross_entropy import CrossEntropyOptions, cross_entropy
from captioner.training.step import Step


class LabelLikelihood(Objective[CrossEntropyOptions]):
    """Captions that begin with a photo's word and its article, and go on (Anderson et al. 2018,
    arXiv:1806.06004, learn from such partial captions). Each epoch draws one of the photo's words, mostly the
    most exact one."""

    Options = CrossEntropyOptions
    batches = frozenset({LABELS})

    def __init__(self, options: CrossEntropyOptions, run: Run) -> None:
        super().__init__(options, run)
        self._words = {
            index: (words, example.repeat)
            for index, example in enumerate(run.examples)
            if (words := known_words(example.image.words, run.vocabulary))
        }

    def groups(self, random: np.random.Generator) -> list[Group]:
        start, encode = self.run.vocabulary.start_id, self.run.vocabulary.encode
        found = []
        for index, (words, repeat) in self._words.items():
            for _ in range(repeat):
                # No end token: the caption goes on, nobody knows how.
                partial = (start, *encode(beginning(draw(words, random))))
                found.append(Group(index, (partial,), can_mirror=True, kind=LABELS))
        return found

    def loss(self, step: Step) -> Tensor:
        return cross_entropy(step.logits, step.targets, self.options.label_smoothing)
