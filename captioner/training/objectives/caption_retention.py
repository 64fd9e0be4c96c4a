"""Learning without forgetting: photos keep the captions that the run started with.

Rewards for captions favour words that people often write, and make rarer names less likely on all photos.
Corrections of a few photos change the captions of all others. This objective samples captions of labelled
photos, and of those of `retained` data, from the starting model. Along these captions, it keeps the
prediction of every next word, and what a checklist detects, close to those of the starting model (Li and
Hoiem 2016, arXiv:1606.09282; word by word, Kim and Rush 2016, arXiv:1606.07947).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.training.config.train_options import ObjectiveOptions, TrainOptions
from captioner.training.data.batches import NAMED, RETAINED, Group, make_sampled_groups
from captioner.training.data.frozen_part import trained_outputs
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
    batches = frozenset({NAMED, RETAINED})

    def __init__(self, options: CaptionRetentionOptions, run: Run) -> None:
        super().__init__(options, run)
        assert run.start  # the options have been checked
        # In a tuple: not a part of this module's state.
        self._start = (run.start.build().to(run.device).eval(),)

    def groups(self, random: np.random.Generator) -> list[Group]:
        examples, samples = self.run.examples, self.options.samples
        return [group for kind in (NAMED, RETAINED) for group in make_sampled_groups(examples, kind, samples)]

    def loss(self, step: Step) -> Tensor:
        sampled, theirs, detected = self._captions(step)
        with without_dropout(step.model.decoder):  # as the start predicts
            logits, _ = logits_of(step.model.decoder, sampled, step.memory, step.state)
        # The start does not know new words: whatever the model gives them here is taken from the others.
        known = theirs.shape[-1]
        said = torch.log_softmax(logits.float(), dim=-1)[..., :known]
        loss = mean_of_words((theirs.exp() * (theirs - said)).sum(dim=-1), sampled[:, :, 1:])
        if detected is None:
            return loss
        detects = torch.log_softmax(step.model.decoder.detect(step.memory).float(), dim=-1)[..., :known]
        return loss + (detected.exp() * (detected - detects)).sum(dim=-1).mean()

    @torch.no_grad()
    def _captions(self, step: Step) -> tuple[Tensor, Tensor, Tensor | None]:
        """Captions as from `sample`; the start's log-probabilities of each next word, float32 (batch,
        samples, length, vocabulary); and if it has a checklist, those of detected words (batch,
        vocabulary)."""
        [model] = self._start
        outputs = trained_outputs(model.encoder, step.features, self.run.options.frozen_segments)
        memory, state = model.prepare(outputs, step.photo_mask)
        sampled = sample(
            model.decoder,
            memory,
            state,
            self.options.samples,
            self.run.options.max_words,
            self.options.temperature,
        )
        logits, _ = logits_of(model.decoder, sampled, memory, state)
        detected = None
        if model.options.bonus.checklist_weight:
            detected = torch.log_softmax(model.decoder.detect(memory).float(), dim=-1)
        return sampled, torch.log_softmax(logits.float(), dim=-1), detected
