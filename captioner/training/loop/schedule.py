"""The optimiser of a stage, and its learning rates."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import StageOptions


def make_optimizer(
    model: CaptionModel, objectives: Iterable[nn.Module], stage: StageOptions
) -> torch.optim.Optimizer:
    """AdamW for the tuned segments of the backbone, the rest of the model, and the parameters of
    objectives."""
    backbone = model.encoder.backbone
    tuned = [p for p in backbone.parameters() if p.requires_grad]
    elsewhere = {id(p) for p in backbone.parameters()}
    for part in _frozen(model, stage):
        elsewhere |= {id(p) for p in part.parameters()}
    rest = [p for p in model.parameters() if id(p) not in elsewhere]
    rest += [p for objective in objectives for p in objective.parameters()]
    matrices = [p for p in rest if p.dim() > 1]
    vectors = [p for p in rest if p.dim() <= 1]
    decay = 0.0 if stage.label_words_only else stage.weight_decay  # other words stay as they are
    groups = [
        {"params": matrices, "base": stage.learning_rate, "weight_decay": decay},
        {"params": vectors, "base": stage.learning_rate, "weight_decay": 0.0},
    ]
    if tuned:
        groups.append({"params": tuned, "base": stage.encoder_learning_rate, "weight_decay": 0.0})
    return torch.optim.AdamW(groups, lr=stage.learning_rate, betas=(0.9, 0.98), fused=True)


def _frozen(model: CaptionModel, stage: StageOptions) -> Iterator[nn.Module]:
    """The parts of the model, besides segments of the backbone, that the stage does not train."""
    decoder = model.decoder
    if model.evidence is not None and (stage.frozen_evidence or stage.frozen_detection):
        yield model.evidence
    if stage.frozen_detection:
        yield model.encoder
        yield decoder.embedding
        yield from decoder.detectors


def keep_other_words(model: CaptionModel, words: Tensor) -> None:
    """Drop all gradients but those of the embeddings of `words`, int64."""
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        if name.startswith("decoder.embedding."):
            wanted = parameter.grad[words]
            parameter.grad.zero_()[words] = wanted
        else:
            parameter.grad = None


class Clock:
    """The time that a stage, or one of its runs, has taken."""

    def __init__(self, spent_s: float = 0.0) -> None:
        """`spent_s` before a run was resumed."""
        self._began = time.monotonic() - spent_s
        self._ticked = time.monotonic()

    @property
    def spent_s(self) -> float:
        return time.monotonic() - self._began

    def share_of(self, stage: StageOptions) -> float:
        """How much of its time a stage has used up, 1 for all; 0 for one that may take any time."""
        return min(1.0, self.spent_s / stage.seconds) if stage.seconds else 0.0

    def ticks(self, every_s: float) -> bool:
        """Whether so much time has passed since it last said so, or began."""
        now = time.monotonic()
        if now - self._ticked < every_s:
            return False
        self._ticked = now
        return True


def set_learning_rate(optimizer: torch.optim.Optimizer, stage: StageOptions, step: int, done: float) -> None:
    """Linear warm-up, then cosine decay (Loshchilov and Hutter 2017, arXiv:1608.03983); `done` is the share
    of the stage's steps, or of its time, that is over before this step."""
    warm = min(1.0, (step + 1) / max(1, stage.warmup_steps))
    cosine = 0.5 * (1 + math.cos(math.pi * done))
    floor = min(1.0, stage.final_learning_rate / stage.learning_rate) if stage.learning_rate else 1.0
    for group in optimizer.param_groups:
        group["lr"] = group["base"] * warm * (floor + (1 - floor) * cosine)
