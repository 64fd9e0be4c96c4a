"""Learning without forgetting: labelled photos keep the captions that the run started with.

Rewards for captions favour words that people often write, and make rarer names less likely on all photos.
This objective samples captions of labelled photos from the starting model. Along these captions, it keeps the
prediction of every next word close to that of the starting model (Li and Hoiem 2016, arXiv:1606.09282; word
by word, Kim and Rush 2016, arXiv:1606.07947).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.nn.model import CaptionModel
from captioner.training.config.options import ObjectiveOptions, TrainOptions
from captioner.training.data.batches import NAMED, Group, make_labelled_groups
from captioner.training.data.cache import trained_stages
from captioner.training.objectives.base import Objective
from captioner.training.objectives.likelihood import mean_of_words
from captioner.training.objectives.sampling import logits_of, sample, without_dropout
from captioner.training.run import Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptionRetentionOptions(ObjectiveOptions):
    samples: int = 8
    """Captions that the start samples per image."""
    temperature: float = 0.5
    """They are sampled from softmax(logits / temperature)."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        self.at_least(1, "samples")
        self.at_least(0.01, "temperature")

    def check(self, run: TrainOptions) -> None:
        if not run.start:
            raise DataError("it keeps what a trained model says: set start")

    def sampled(self, captions: int, labelled: bool) -> int:
        return self.samples * labelled


class CaptionRetention(Objective[CaptionRetentionOptions]):
    """Divergence from the predictions of the model that the run starts from, with checklists."""

    Options = CaptionRetentionOptions
    batches = frozenset({NAMED})

    def __init__(self, options: CaptionRetentionOptions, run: Run) -> None:
        super().__init__(options, run)
        start = run.start
        assert start  # the options have been checked
        if start.vocabulary.words != run.vocabulary.words:
            raise DataError("caption_retention needs a run without new words: raise min_count")
        model = CaptionModel(start.model, len(run.vocabulary))
        start.give(model, run.vocabulary)
        self._start = (model.to(run.device).eval(),)  # in a tuple: not a part of this module's state

    def groups(self, random: np.random.Generator) -> list[Group]:
        return make_labelled_groups(self.run.examples, self.options.samples)

    def loss(self, step: Step) -> Tensor:
        sampled, taught = self._captions(step)
        with without_dropout(step.model.decoder):  # as the start predicts
            logits, _ = logits_of(step.model.decoder, sampled, step.memory, step.state)
        said = torch.log_softmax(logits.float(), dim=-1)
        return mean_of_words((taught.exp() * (taught - said)).sum(dim=-1), sampled[:, :, 1:])

    @torch.no_grad()
    def _captions(self, step: Step) -> tuple[Tensor, Tensor]:
        """Captions as from `sample`, and the start's log-probabilities of each next word, float32 (batch,
        samples, length, vocabulary)."""
        [model] = self._start
        stages = trained_stages(model.encoder, step.features, self.run.options.frozen_segments)
        memory, state = model.prepare(stages, step.photo_mask)
        sampled = sample(
            model.decoder,
            memory,
            state,
            self.options.samples,
            self.run.options.max_words,
            self.options.temperature,
        )
        logits, _ = logits_of(model.decoder, sampled, memory, state)
        return sampled, torch.log_softmax(logits.float(), dim=-1)
