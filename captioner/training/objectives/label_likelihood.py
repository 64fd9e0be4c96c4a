"""Likelihood of captions that name what a labelled photo shows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.training.data.batches import LABELS, Group
from captioner.training.data.examples import Example
from captioner.training.names.completion import Completion
from captioner.training.names.label_words import draw, known_words, related_words
from captioner.training.objectives.base import Objective
from captioner.training.objectives.cross_entropy import CrossEntropyOptions, cross_entropy
from captioner.training.run import Run, Step
from captioner.words.nouns import with_article

FEWEST = 60
"""Occurrences that a word needs in captions to tell what follows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelLikelihoodOptions(CrossEntropyOptions):
    complete: bool = True
    """In a run that starts from a trained model, learn whole captions that this model finds for the photos
    when it must say their most exact word; otherwise only the name and what follows it."""
    continuation: float = 0.25
    """Weight of the word after the name, which labels do not have: its target is how often each word follows
    related words in captions. Without it, another name follows: "a seal dolphin"."""

    def __post_init__(self) -> None:
        CrossEntropyOptions.__post_init__(self)
        self.at_least(0, "continuation")


class LabelLikelihood(Objective[LabelLikelihoodOptions]):
    """Captions that begin with a photo's word and its article, and go on (Anderson et al. 2018,
    arXiv:1806.06004, learn from such partial captions). Each epoch draws one of the photo's words, mostly the
    most exact one. In a run that starts from a trained model: whole captions, by `complete`.
    """

    Options = LabelLikelihoodOptions
    batches = frozenset({LABELS})

    following: Tensor
    """float (rows, vocabulary), as `continuations` gives it."""

    def __init__(self, options: LabelLikelihoodOptions, run: Run) -> None:
        super().__init__(options, run)
        self._words = {
            index: (words, example.repeat)
            for index, example in enumerate(run.examples)
            if (words := known_words(example.image.words, run.vocabulary))
        }
        self._completed = self._complete() if options.complete and run.options.start else {}
        labelled = {index: run.examples[index].image.words for index in self._words}
        captioned = () if self._completed else run.examples  # whole captions need no continuation
        following, self._rows = continuations(captioned, labelled, run.vocabulary)
        self.register_buffer("following", following.to(run.device), persistent=False)

    def _complete(self) -> dict[int, tuple[int, ...]]:
        """Whole captions, by image, of the model that the run starts from."""
        run, start = self.run, self.run.start
        assert start  # `_complete` is called only where there is one
        with torch.random.fork_rng(devices=[]):  # other stages and resumed runs find the same captions
            torch.manual_seed(run.options.seed)
            model = CaptionModel(start.model, len(run.vocabulary))
        start.give(model, run.vocabulary, related_words(run.examples))
        completion = Completion(
            model.to(run.device).eval(),
            run.features,
            run.options.frozen_segments,
            run.vocabulary,
            len(start.vocabulary),
            run.options.search,
            run.device,
        )
        completed = {}
        with run.progress.task("captions for labelled photos", len(self._words), 0) as tell:
            for index, tokens in completion.complete({index: own for index, (own, _) in self._words.items()}):
                completed[index] = (run.vocabulary.start_id, *tokens, run.vocabulary.end_id)
                tell(len(completed), "")
        return completed

    def groups(self, random: np.random.Generator) -> list[Group]:
        found = []
        for index, (words, repeat) in self._words.items():
            for _ in range(repeat):
                caption = self._completed.get(index) or self._partial(draw(words, random))
                found.append(Group(index, (caption,), can_mirror=True, kind=LABELS))
        return found

    def _partial(self, word: str) -> tuple[int, ...]:
        """No end token: the caption goes on. The padding makes room for the word behind the name."""
        vocabulary = self.run.vocabulary
        return (vocabulary.start_id, *vocabulary.encode(with_article(word)), vocabulary.pad_id)

    def loss(self, step: Step) -> Tensor:
        logits = step.logits
        if self.options.as_searched or self.run.stage.label_words_only:
            # Nothing but new words can be unlearnt here, and these must stand the bonus that they will get.
            logits = step.model.decoder.as_searched(logits, step.tokens, step.memory, step.state)
        named = cross_entropy(logits, step.targets, self.options.label_smoothing)
        if not self.options.continuation or not len(self.following):
            return named
        behind = (step.targets[:, 0] != Vocabulary.pad_id).sum(dim=-1)
        next_word = logits[torch.arange(len(behind), device=behind.device), 0, behind].float()
        wanted = self.following[[self._rows[index] for index in step.batch.images.tolist()]]
        continued = -(wanted * torch.log_softmax(next_word, dim=-1)).sum(dim=-1).mean()
        return named + self.options.continuation * continued


def continuations(
    examples: Sequence[Example], labelled: Mapping[int, Sequence[str]], vocabulary: Vocabulary
) -> tuple[Tensor, dict[int, int]]:
    """What follows the words of labelled photos in captions: shares of the vocabulary, float (rows,
    vocabulary), and the row of each photo.

    The first of a photo's words that has `FEWEST` occurrences counts; a photo without one gets the mean of
    the others. Without captions there are no rows.
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
