"""Likelihood of the captions, by teacher forcing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.objectives.base import Objective
from captioner.training.run import Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropyOptions(ObjectiveOptions):
    label_smoothing: float = 0.1
    """Share of the target probability that is spread over all words."""
    as_searched: bool = False
    """Learn the captions with the bonuses of a checklist, as a search says them. A few corrections need that,
    or what is detected in their photos wins; many captions would undo the checklist."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        if not 0 <= self.label_smoothing < 1:
            raise DataError(f"label_smoothing must be at least 0 and below 1, got {self.label_smoothing}")


class CrossEntropy(Objective[CrossEntropyOptions]):
    """Every word of every caption, given the words before it."""

    Options = CrossEntropyOptions

    def __init__(self, options: CrossEntropyOptions, run: Run) -> None:
        super().__init__(options, run)
        if run.model.options.bonus.checklist_weight and "bag_of_words" not in run.stage.objectives:
            run.progress.note(
                f"stage {run.stage.name}: without the objective bag_of_words, the words that the checklist"
                " detects become outdated"
            )

    def loss(self, step: Step) -> Tensor:
        logits = step.logits
        if self.options.as_searched:
            logits = step.model.decoder.as_searched(logits, step.tokens, step.memory, step.state)
        return cross_entropy(logits, step.targets, self.options.label_smoothing)


def cross_entropy(logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    """Mean negative log-likelihood of a word (Szegedy et al. 2016, arXiv:1512.00567, for the smoothing).

    `logits` (batch, captions, length, vocabulary), `targets` int64 (batch, captions, length); padding is
    ignored.
    """
    return F.cross_entropy(
        logits.flatten(0, 2).float(),
        targets.flatten(),
        ignore_index=Vocabulary.pad_id,
        label_smoothing=label_smoothing,
    )
