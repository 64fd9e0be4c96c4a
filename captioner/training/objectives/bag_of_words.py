"""Detection of the captions' words from the whole photo, without their order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.model.vocabulary import SPECIAL
from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.data.batches import CAPTIONS, LABELS, word_weights
from captioner.training.objectives.base import Objective
from captioner.training.run import Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class BagOfWordsOptions(ObjectiveOptions):
    weight: float = 0.2


class BagOfWords(Objective[BagOfWordsOptions]):
    """Which words the captions of a photo have, rare words counting more (the attributes of Wu et al. 2016,
    arXiv:1506.01144); the detector of the checklist. For decoders that can `detect`."""

    Options = BagOfWordsOptions
    batches = frozenset({CAPTIONS, LABELS})

    word_weights: Tensor

    def __init__(self, options: BagOfWordsOptions, run: Run) -> None:
        super().__init__(options, run)
        if not run.model.decoder.detects:
            raise DataError(f"stage {run.stage.name}: bag_of_words needs the decoder lstm or two_lstm")
        weights = word_weights(run.caption_groups, len(run.vocabulary))
        labels = {label for example in run.examples for label in example.image.words}
        for word in run.vocabulary.encode(" ".join(sorted(labels))):
            if word >= len(SPECIAL) and not weights[word]:
                weights[word] = weights.max() or 1.0  # no caption has it, so it is rare
        if run.start:
            # What is taught counts even if every caption has it: else what the start sees in its place wins.
            first_new = len(run.start.vocabulary)
            weights[first_new:] = weights[first_new:].clamp(min=1.0)
        weights = weights.to(run.device)
        self.register_buffer("word_weights", weights, persistent=False)

    def loss(self, step: Step) -> Tensor:
        decoder = step.model.decoder
        return bag_of_words(decoder.detect(step.memory), self._word_counts(step.captions))

    def _word_counts(self, captions: Tensor) -> Tensor:
        """How often the captions of each image have a word, times its weight: float (batch, vocabulary)."""
        words = captions.flatten(1)
        counts = torch.zeros(len(words), len(self.word_weights), device=words.device)
        counts.scatter_add_(1, words, torch.ones_like(words, dtype=counts.dtype))
        return counts * self.word_weights


def bag_of_words(logits: Tensor, counts: Tensor) -> Tensor:
    """Mean cross-entropy of the words of an image's captions with softmax(logits).

    `logits` (batch, vocabulary), `counts` float (batch, vocabulary): how often the captions have each word,
    times its weight. Fang et al. 2015 (arXiv:1411.4952) detect words before they write captions.
    """
    shares = counts / counts.sum(dim=-1, keepdim=True).clamp(min=1e-6)
    return -(shares * torch.log_softmax(logits.float(), dim=-1)).sum(dim=-1).mean()
