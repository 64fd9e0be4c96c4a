"""The loss of a stage: the weighted sum of its objectives, for each batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.training.data.augment import disturb, enlarge, hide, hide_means, random_part
from captioner.training.data.batches import Batch, Group, epoch_batches
from captioner.training.data.feature_cache import FeatureCache
from captioner.training.data.frozen_part import trained_outputs
from captioner.training.data.placing import sent
from captioner.training.objectives import OBJECTIVES
from captioner.training.objectives.base import Objective
from captioner.training.run import Run, Step


class Losses(nn.ModuleDict):
    """The objectives of a stage by name; a module, so that their state is one table of tensors."""

    def __init__(self, run: Run, stage_number: int) -> None:
        """Raises `DataError` if the run lacks what an objective needs."""
        self.run, self.number = run, stage_number
        super().__init__({name: OBJECTIVES[name](o, run) for name, o in run.stage.objectives.items()})
        self.to(run.device)
        self._groups(0)

    def inherit(self, before: nn.ModuleDict) -> None:
        """Take over what the same objectives learnt in the previous stage, where its shapes still fit."""
        for name, objective in self.items():
            if name in before:
                ours, theirs = objective.state_dict(), before[name].state_dict()
                if {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}:
                    objective.load_state_dict(theirs)

    def batches(self, epoch: int) -> list[Batch]:
        """The batches of an epoch in order; the same for the same epoch."""
        return epoch_batches(self._groups(epoch), self.run.stage, self._seed(epoch), self.run.options.crops)

    def _seed(self, epoch: int) -> tuple[int, int, int]:
        return self.run.options.seed, self.number, epoch

    def _groups(self, epoch: int) -> list[Group]:
        """The groups of an epoch. Raises `DataError` if an objective would have nothing."""
        groups: dict[str, list] = {}
        for number, objective in enumerate(self._objectives()):
            wanted: dict[str, list] = {}
            for group in objective.groups(np.random.default_rng((*self._seed(epoch), number))):
                wanted.setdefault(group.kind, []).append(group)
            groups = wanted | groups
        for name, objective in zip(self, self._objectives(), strict=True):
            if not any(objective.applies_to(kind) for kind in groups):
                raise DataError(f"stage {self.run.stage.name}: there are no images for {name} to learn from")
        return [group for kind in groups for group in groups[kind]]

    def loss(self, step: Step) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum, and the loss of each objective that has one for this batch."""
        total, told = torch.zeros((), device=step.grid.device), dict[str, Tensor]()
        for name, objective in zip(self, self._objectives(), strict=True):
            if objective.applies_to(step.batch.kind):
                loss = objective.loss(step)
                total = total + objective.options.weight * loss
                told[name] = loss.detach()
        return total, told

    def _objectives(self) -> Sequence[Objective]:
        return list(self.values())  # type: ignore[arg-type]


def forward(run: Run, cache: FeatureCache, batch: Batch) -> Step:
    """Run the encoder on a batch, with the stage's zoom, disturbances and hiding.

    Only the model in training sees disturbed pixels. What objectives compare it with is computed from
    `Step.features`, which are not: the model learns that the photo is the same.
    """
    stage, model = run.stage, run.model
    maps = cache.maps(batch.images, batch.views, run.device)
    photo_mask = cache.masks(batch.images, batch.views, run.device)
    part = random_part(len(batch.images), stage.zoom, run.device) if stage.zoom < 1 else None
    if part is not None:
        maps = enlarge(maps, part)
    seen = [disturb(maps[0], stage.disturbed)] if stage.disturbed else maps
    outputs = trained_outputs(model.encoder, seen, run.options.frozen_segments, stage.tuned_segments)
    grid = model.encoder.fuse(outputs, photo_mask)
    hidden, mask = hide(grid, photo_mask, stage.hidden_cells, stage.hidden_features)
    memory, state = model.decoder.prepare(hidden, mask, model.encoder.evidence_input(outputs).float())
    memory, state = hide_means(memory, state, stage.hidden_means)
    captions = sent(batch.captions, run.device)
    return Step(model, batch, captions, maps, photo_mask, part, outputs, grid, memory, state)
