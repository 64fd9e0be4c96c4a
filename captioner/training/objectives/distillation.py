"""Learning from trained models, besides the captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.training.config.options import ObjectiveOptions
from captioner.training.data.cache import trained_stages
from captioner.training.objectives.base import Objective
from captioner.training.objectives.likelihood import mean_of_words
from captioner.training.run import Run, Step
from captioner.training.weights.start import Start


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationOptions(ObjectiveOptions):
    weight: float = 0.5
    """Together with the weight of `cross_entropy`, usually 1 less this, it sums to 1."""
    teachers: tuple[str, ...] = ()
    """Trained models, named as `TrainOptions.start`, with the words of this run and its frozen segments.
    Their mean prediction is learnt: an ensemble for the cost of one model."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        if not self.teachers:
            raise DataError("distillation needs teachers")


class Distillation(Objective[DistillationOptions]):
    """The teachers' prediction of every next word."""

    Options = DistillationOptions

    def __init__(self, options: DistillationOptions, run: Run) -> None:
        super().__init__(options, run)
        self.teachers = Teachers(
            options.teachers,
            run.data_root,
            run.model,
            run.vocabulary,
            run.options.frozen_segments,
            run.device,
        )

    def loss(self, step: Step) -> Tensor:
        taught = self.teachers.predict(step.features, step.photo_mask, step.tokens)
        return distillation(step.logits, taught, step.targets)


def distillation(logits: Tensor, taught: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of the prediction with the teachers' (Hinton et al. 2015, arXiv:1503.02531).

    `logits` and `taught`, probabilities, float (batch, captions, length, vocabulary), `targets` int64 (batch,
    captions, length); padding is ignored.
    """
    return mean_of_words(-(taught * torch.log_softmax(logits.float(), dim=-1)).sum(dim=-1), targets)


class Teachers:
    """The predictions of an ensemble, for a single model to learn (Hinton et al. 2015, arXiv:1503.02531;
    word by word, Kim and Rush 2016, arXiv:1606.07947).

    The teachers read the cached features of the run, so their `frozen_segments` are those of the student.
    """

    def __init__(
        self,
        names: Sequence[str],
        root: Path,
        student: CaptionModel,
        vocabulary: Vocabulary,
        frozen_segments: int,
        device: torch.device,
    ) -> None:
        """`names` as `Start.read` takes them. Raises `DataError` for a teacher with another vocabulary
        or other preprocessing."""
        self.frozen = frozen_segments
        self.models: list[CaptionModel] = []
        for name in names:
            start = Start.read(name, root)
            if start.vocabulary.words != vocabulary.words:
                raise DataError(f"the teacher {name} has other words than the model to be trained")
            model = CaptionModel(start.model, len(vocabulary))
            start.give(model, vocabulary)
            if not _sees_alike(model, student, frozen_segments):
                raise DataError(f"the teacher {name} sees other features than the model to be trained")
            self.models.append(model.to(device).eval())

    @torch.no_grad()
    def predict(self, maps: list[Tensor], mask: Tensor | None, tokens: Tensor) -> Tensor:
        """The mean of their probabilities of each next word, float32 (batch, captions, length, vocabulary).

        `maps` and `mask` come from the cache, `tokens` int64 (batch, captions, length) are what was read.
        """
        said = []
        for model in self.models:
            stages = trained_stages(model.encoder, maps, self.frozen)
            logits, _ = model.decoder(tokens, *model.prepare(stages, mask))
            said.append(torch.softmax(logits.float(), dim=-1))
        return torch.stack(said).mean(dim=0)


def _sees_alike(teacher: CaptionModel, student: CaptionModel, frozen_segments: int) -> bool:
    ours, theirs = teacher.options, student.options
    if any(
        getattr(ours, name) != getattr(theirs, name) for name in ("encoder", "image_size", "resize", "stride")
    ):
        return False
    if bool(ours.color_levels) != bool(theirs.color_levels):
        return False
    frozen = (model.encoder.backbone.segments[:frozen_segments].state_dict() for model in (teacher, student))
    return all(  # but for the rounding to half precision in a checkpoint or bundle
        torch.allclose(a.float().cpu(), b.float().cpu(), rtol=1e-3, atol=1e-5)
        for a, b in zip(*(state.values() for state in frozen), strict=True)
    )
