"""Likelihood of captions of which only the beginning is known: what a labelled photo shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.training.data import LABELS, Example, Group
from captioner.training.naming import beginning, draw, known_words
from captioner.training.objectives.base import Objective, Run
from captioner.training.objectives.cross_entropy import CrossEntropyOptions, cross_entropy
from captioner.training.step import Step

FEWEST = 60
"""Times that captions go on after a word, before they tell what follows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelLikelihoodOptions(CrossEntropyOptions):
    continuation: float = 0.25
    """Weight of the word behind the name. Nobody knows it; it is taught the shares of the words that follow
    related words in captions. Without it, a name is followed by another one: "a seal dolphin"."""

    def __post_init__(self) -> None:
        CrossEntropyOptions.__post_init__(self)
        self.at_least(0, "continuation")


class LabelLikelihood(Objective[LabelLikelihoodOptions]):
    """Captions that begin with a photo's word and its article, and go on (Anderson et al. 2018,
    arXiv:1806.06004, learn from such partial captions). Each epoch draws one of the photo's words, mostly the
    most exact one."""

    Options = LabelLikelihoodOptions
    batches = frozenset({LABELS})

    def __init__(self, options: LabelLikelihoodOptions, run: Run) -> None:
        super().__init__(options, run)
        self._words = {
            index: (words, example.repeat)
            for index, example in enumerate(run.examples)
            if (words := known_words(example.image.words, run.vocabulary))
        }
        labelled = {index: run.examples[index].image.words for index in self._words}
        following, self._rows = continuations(run.examples, labelled, run.vocabulary)
        self.register_buffer("following", following.to(run.device), persistent=False)

    following: Tensor

    def groups(self, random: np.random.Generator) -> list[Group]:
        start, pad, encode = self.run.vocabulary.start_id, Vocabulary.pad_id, self.run.vocabulary.encode
        found = []
        for index, (words, repeat) in self._words.items():
            for _ in range(repeat):
                # No end token: the caption goes on. The padding makes room for the word behind the name.
                partial = (start, *encode(beginning(draw(words, random))), pad)
                found.append(Group(index, (partial,), can_mirror=True, kind=LABELS))
        return found

    def loss(self, step: Step) -> Tensor:
        named = cross_entropy(step.logits, step.targets, self.options.label_smoothing)
        if not self.options.continuation or not len(self.following):
            return named
        behind = (step.targets[:, 0] != Vocabulary.pad_id).sum(dim=-1)
        logits = step.logits[torch.arange(len(behind), device=behind.device), 0, behind].float()
        wanted = self.following[[self._rows[index] for index in step.batch.images.tolist()]]
        continued = -(wanted * torch.log_softmax(logits, dim=-1)).sum(dim=-1).mean()
        return named + self.options.continuation * continued


def continuations(
    examples: Sequence[Example], labelled: Mapping[int, Sequence[str]], vocabulary: Vocabulary
) -> tuple[Tensor, dict[int, int]]:
    """What follows the words of labelled photos in captions: shares of the vocabulary, float (rows,
    vocabulary), and the row of each photo.

    Of a photo's words the first counts that captions often go on after; where there is none, the mean of all
    other photos. Without captions there are no rows.
    """
    after: dict[int, Counter[int]] = defaultdict(Counter)
    for example in examples:
        for caption in example.image.captions:
            for word, following in pairwise(vocabulary.encode(caption)):
                if following != vocabulary.unknown_id:
                    after[word][following] += 1
    known = {word: counts for word, counts in after.items() if counts.total() >= FEWEST}
    last = {
        index: next((word for text in words for word in vocabulary.encode(text)[-1:] if word in known), None)
        for index, words in labelled.items()
    }
    rows = {word: row for row, word in enumerate(dict.fromkeys(w for w in last.values() if w is not None))}
    if not rows:
        return torch.zeros(0, len(vocabulary)), {}
    shares = torch.zeros(len(rows) + 1, len(vocabulary))
    for word, row in rows.items():
        for following, count in known[word].items():
            shares[row, following] = count / known[word].total()
    shares[-1] = shares[[rows[word] for word in last.values() if word is not None]].mean(dim=0)
    return shares, {index: len(rows) if word is None else rows[word] for index, word in last.items()}
