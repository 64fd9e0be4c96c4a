"""Learning without forgetting: the tuned encoder keeps what the pretrained one knows.

Captions teach an encoder a few hundred objects, and it forgets the others. This objective keeps its deepest
features, and the classes that its classifier reads from them, near those of the pretrained encoder on every
photo (Li and Hoiem 2016, arXiv:1606.09282).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.nn.encoder import pretrained_classifier
from captioner.training.config.train_options import ObjectiveOptions, TrainOptions
from captioner.training.data.augment import enlarge
from captioner.training.data.pretrained import PretrainedFeatures
from captioner.training.objectives.base import Objective, check_classes
from captioner.training.objectives.likelihood import divergence
from captioner.training.run import Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRetentionOptions(ObjectiveOptions):
    features: float = 2.0
    """Weight of the squared error of the features of each cell, in units of their variance."""
    classes: float = 0.5
    """Weight of the divergence of the photo's class probabilities."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        self.at_least(0, "features", "classes")

    def check(self, run: TrainOptions) -> None:
        if not run.may_have_classes:
            raise DataError("class_retention needs [model.bonus] classes")
        if run.model.resize != "squash":
            raise DataError("class_retention needs squashed photos, as the pretrained encoder sees them")


class ClassRetention(Objective[ClassRetentionOptions]):
    """Distance to the pretrained encoder's deepest features and classes; for any batch."""

    Options = ClassRetentionOptions
    batches = None

    weight: Tensor
    bias: Tensor

    def __init__(self, options: ClassRetentionOptions, run: Run) -> None:
        super().__init__(options, run)
        check_classes(run.model, "class_retention")
        model = run.options.model
        weight, bias = pretrained_classifier(model.encoder)
        self.register_buffer("weight", weight.to(run.device), persistent=False)
        self.register_buffer("bias", bias.to(run.device), persistent=False)
        teacher = PretrainedFeatures(model.encoder, model.image_size, run.device)
        self.features = run.teacher_features(teacher, "pretrained encoder")

    def loss(self, step: Step) -> Tensor:
        evidence = step.model.evidence
        assert evidence is not None  # the options have been checked
        [wanted] = self.features.take(step.batch.images, step.batch.views)
        if step.part is not None:
            [wanted] = enlarge([wanted], step.part)
        mean, deviation = self.features.scales[0]
        deepest = step.outputs[-1].float()
        error = (((deepest - mean) / deviation - wanted).square() * deviation.square()).mean()
        error = error / deviation.square().mean()
        theirs = F.linear((wanted * deviation + mean).mean(dim=(2, 3)), self.weight, self.bias)
        with torch.autocast(deepest.device.type, enabled=False):
            said = evidence.classes(evidence.shared(deepest.mean(dim=(2, 3))))[:, : len(self.bias)]
        return self.options.features * error + self.options.classes * divergence(said, theirs)
