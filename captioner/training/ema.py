"""A moving average of the weights, which generalises better than the current ones.

`torch.optim.swa_utils.AveragedModel` would save no code: it copies the whole model, under other names than
checkpoints have, and cannot lend its weights to the trained model for validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """Exponential moving average of a model's parameters (Polyak and Juditsky 1992; Tarvainen and
    Valpola 2017, arXiv:1703.01780, for the growing decay at the start)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.values = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 10))
        current = [p.detach() for _, p in model.named_parameters()]
        torch._foreach_lerp_(list(self.values.values()), current, 1 - decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Within this context, the model has the average, rounded to half precision as in a bundle."""
        kept = {name: p.detach().clone() for name, p in model.named_parameters()}
        copy_weights(model, {name: value.half().to(value.dtype) for name, value in self.values.items()})
        try:
            yield
        finally:
            copy_weights(model, kept)


@torch.no_grad()
def copy_weights(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give the model's parameters these values, by name."""
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])
