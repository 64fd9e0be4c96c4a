"""Features of another network that the grid learns to predict.

A network trained on many more photos distinguishes what a few thousand captions never name. A grid that
predicts its features, cell by cell, has learnt some of that: the hints of FitNets (Romero et al. 2015,
arXiv:1412.6550). The exported model does not contain the other network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.configuration import below
from captioner.errors import DataError
from captioner.training.config.train_options import ObjectiveOptions, TrainOptions
from captioner.training.data.augment import enlarge
from captioner.training.data.teacher_features import NORMALIZATIONS, FeatureNetwork
from captioner.training.objectives.base import Objective
from captioner.training.run import Run, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDistillationOptions(ObjectiveOptions):
    network: str = ""
    """An ONNX file below the data root (`captioner.training.data.teacher_features.FeatureNetwork`)."""
    normalization: str = "imagenet"
    """Normalization of the network's input pixels: imagenet or clip."""

    def __post_init__(self) -> None:
        ObjectiveOptions.__post_init__(self)
        if not self.network:
            raise DataError("feature_distillation needs a network")
        if self.normalization not in NORMALIZATIONS:
            raise DataError(f"normalization must be one of {', '.join(NORMALIZATIONS)}")

    def check(self, run: TrainOptions) -> None:
        if run.model.resize != "squash":
            raise DataError("feature_distillation needs squashed photos, as its network sees them")


class FeatureDistillation(Objective[FeatureDistillationOptions]):
    """Mean squared error of the network's features, predicted linearly from the grid."""

    Options = FeatureDistillationOptions
    batches = None

    def __init__(self, options: FeatureDistillationOptions, run: Run) -> None:
        super().__init__(options, run)
        model = run.options.model
        network = FeatureNetwork(
            below(run.data_root, options.network), options.normalization, model.image_size, run.device
        )
        self.features = run.teacher_features(network, "teacher network")
        self.size = model.grid
        self.reader = FeatureReader(model.features, self.features.sizes).to(run.device)

    def loss(self, step: Step) -> Tensor:
        features = self.features.take(step.batch.images, step.batch.views)
        if step.part is not None:
            features = enlarge(features, step.part)
        error: Tensor = self.reader(step.grid, self.size, features)
        return error


class FeatureReader(nn.Module):
    """Predicts features from a grid, linearly: spatial ones from the cells, those of the whole photo from
    their mean."""

    def __init__(self, features: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.readers = nn.ModuleList(nn.Linear(features, size) for size in sizes)

    def forward(self, grid: Tensor, size: tuple[int, int], features: Sequence[Tensor]) -> Tensor:
        """The mean squared error; 1 for each kind of feature is that of predicting the mean. `grid` (batch,
        rows * columns, features) has rows and columns of `size`, `features` as `TeacherFeatures.take`."""
        cells, *whole = features
        cells = F.interpolate(cells, size=size, mode="bilinear", align_corners=False)
        wanted = [cells.flatten(2).transpose(1, 2), *(values.flatten(1) for values in whole)]
        seen = [grid, *(grid.mean(dim=1) for _ in whole)]
        errors = [
            F.mse_loss(reader(values).float(), target)
            for reader, values, target in zip(self.readers, seen, wanted, strict=True)
        ]
        return torch.stack(errors).sum()
