"""Learning from trained models, besides the captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import ObjectiveOptions
from captioner.training.data.frozen_part import trained_outputs
from captioner.training.objectives.base import Objective, check_classes
from captioner.training.objectives.likelihood import divergence, mean_of_words
from captioner.training.run import Run, Step
from captioner.training.weights.start import Start


@dataclass(frozen=True, slots=True, kw_only=True)
class DistillationOptions(ObjectiveOptions):
    weight: float = 0.5
    """Together with the weight of `cross_entropy`, usually 1 less this, it sums to 1."""
    teachers: tuple[str, ...] = ()
    """Trained models, named as `TrainOptions.start`, with the words of this run and its frozen segments.
    Their mean prediction is learnt: an ensemble for the cost of one model. With `TrainOptions.cached`
    "pixels", they may have other encoders."""
    grid: float = 0.0
    """Weight of the mean squared error of the grid, relative to the words: for a new encoder under the
    decoder of a single teacher."""
    classes: float = 0.0
    """Weight of the divergence of the class probabilities, in each cell and in the whole photo, relative to
    the words."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        self.at_least(0, "grid", "classes")
        if not self.teachers:
            raise DataError("distillation needs teachers")
        if len(self.teachers) > 1 and (self.grid or self.classes):
            raise DataError("grid and classes are those of a single teacher")


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
        if options.classes:
            check_classes(run.model, "distillation of classes")
        for teacher in self.teachers.models:
            if options.grid and teacher.options.features != run.options.model.features:
                raise DataError("the grid of the teacher has another number of features")
            if options.classes and not _names_alike(teacher, run.model):
                raise DataError("the teacher has other classes")

    def loss(self, step: Step) -> Tensor:
        views = self.teachers.see(step.features, step.photo_mask)
        loss = distillation(step.logits, self.teachers.predict(views, step.tokens), step.targets)
        [view, *_] = views
        if self.options.grid:
            loss = loss + self.options.grid * F.mse_loss(step.grid.float(), view.grid)
        if self.options.classes:
            scores = _class_scores(step.model, step.model.encoder.evidence_input(step.outputs))
            with torch.no_grad():
                wanted = _class_scores(view.model, view.deepest)
            in_cells = divergence(scores, wanted)
            in_photo = divergence(scores.mean(dim=1), wanted.mean(dim=1))
            loss = loss + self.options.classes * (in_cells + in_photo)
        return loss


def distillation(logits: Tensor, theirs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of the prediction with the teachers' (Hinton et al. 2015, arXiv:1503.02531).

    `logits` and `theirs`, probabilities, float (batch, captions, length, vocabulary), `targets` int64 (batch,
    captions, length); padding is ignored.
    """
    return mean_of_words(-(theirs * torch.log_softmax(logits.float(), dim=-1)).sum(dim=-1), targets)


@dataclass(frozen=True, slots=True)
class _View:
    """What a teacher sees in a batch."""

    model: CaptionModel
    grid: Tensor
    """(batch, cells, features)"""
    deepest: Tensor
    """What class evidence reads, (batch, channels, rows, columns)."""
    mask: Tensor | None
    """As `Step.photo_mask`."""


class Teachers:
    """The predictions of an ensemble, for a single model to learn (Hinton et al. 2015, arXiv:1503.02531;
    word by word, Kim and Rush 2016, arXiv:1606.07947).

    The teachers read what the cache of the run holds: pixels, or the features of the student's frozen
    segments, which must then be theirs too.
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
            model = start.build()
            if not _sees_alike(model, student, frozen_segments):
                raise DataError(f"the teacher {name} sees other features than the model to be trained")
            self.models.append(model.to(device).eval())

    @torch.no_grad()
    def see(self, maps: list[Tensor], mask: Tensor | None) -> list[_View]:
        """What each teacher sees; `maps` and `mask` come from the cache."""
        views = []
        for model in self.models:
            outputs = trained_outputs(model.encoder, maps, self.frozen)
            views.append(
                _View(model, model.encoder.fuse(outputs, mask), model.encoder.evidence_input(outputs), mask)
            )
        return views

    @torch.no_grad()
    def predict(self, views: Sequence[_View], tokens: Tensor) -> Tensor:
        """The mean of their probabilities of each next word, float32 (batch, captions, length, vocabulary).

        `views` as from `see`; `tokens` int64 (batch, captions, length) are what was read.
        """
        said = []
        for view in views:
            decoder = view.model.decoder
            logits, _ = decoder(tokens, *decoder.prepare(view.grid, view.mask, view.deepest))
            said.append(torch.softmax(logits.float(), dim=-1))
        return torch.stack(said).mean(dim=0)


def _class_scores(model: CaptionModel, deepest: Tensor) -> Tensor:
    """Class logits, float32 (batch, cells, classes), of a model that has classes."""
    assert model.evidence is not None  # the run has been checked
    return model.evidence.class_logits(deepest).float()


def _names_alike(teacher: CaptionModel, student: CaptionModel) -> bool:
    ours, theirs = (model.options.bonus for model in (teacher, student))
    return (ours.classes, ours.label_classes) == (theirs.classes, theirs.label_classes)


def _sees_alike(teacher: CaptionModel, student: CaptionModel, frozen_segments: int) -> bool:
    """Whether a teacher can read what the cache holds: pixels, or the same features."""
    ours, theirs = teacher.options, student.options
    if any(getattr(ours, name) != getattr(theirs, name) for name in ("image_size", "resize", "stride")):
        return False
    if frozen_segments == 0:
        return True
    if ours.encoder != theirs.encoder or bool(ours.color_levels) != bool(theirs.color_levels):
        return False
    frozen = (model.encoder.backbone.segments[:frozen_segments].state_dict() for model in (teacher, student))
    return all(  # but for the rounding to half precision in a checkpoint or bundle
        torch.allclose(a.float().cpu(), b.float().cpu(), rtol=1e-3, atol=1e-5)
        for a, b in zip(*(state.values() for state in frozen), strict=True)
    )
