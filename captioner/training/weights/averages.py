"""Averages of weights: over the steps of a run, over the runs of a stage, and of several checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.training.weights import checkpoint


class MovingAverage:
    """Exponential moving average of a model's parameters (Polyak and Juditsky 1992; Tarvainen and
    Valpola 2017, arXiv:1703.01780, for the growing decay at the start)."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.values = copied_weights(model)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        self.updates += 1
        decay = min(self.decay, self.updates / (self.updates + 10))
        current = [p.detach() for _, p in model.named_parameters()]
        torch._foreach_lerp_(list(self.values.values()), current, 1 - decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Within this context, the model has the average, rounded to half precision as in a bundle."""
        kept = copied_weights(model)
        copy_weights(model, {name: value.half().to(value.dtype) for name, value in self.values.items()})
        try:
            yield
        finally:
            copy_weights(model, kept)


def copied_weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the model's parameters, by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@torch.no_grad()
def copy_weights(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Give the model's parameters these values, by name."""
    for name, parameter in model.named_parameters():
        parameter.copy_(values[name])


class Soup:
    """The initial weights of a stage, from which each of its runs starts, and the sum of the weights that
    the runs reached. Runs from the same weights end in one basin of the loss, and their mean is better
    than each of them (Wortsman et al. 2022, "Model soups", arXiv:2203.05482).
    """

    def __init__(self, model: nn.Module) -> None:
        self.start = copied_weights(model)
        self.total = {name: torch.zeros_like(value) for name, value in self.start.items()}
        self.runs = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        self.runs += 1
        torch._foreach_add_(list(self.total.values()), [values[name] for name in self.total])

    def mean(self) -> dict[str, Tensor]:
        return {name: value / self.runs for name, value in self.total.items()}

    def state(self) -> dict[str, Any]:
        return {"found": self.start, "total": self.total, "runs": self.runs}

    def resume(self, state: Mapping[str, Any]) -> None:
        self.start, self.total, self.runs = state["found"], state["total"], state["runs"]


@torch.no_grad()
def average_checkpoints(paths: Sequence[Path], out: Path) -> None:
    """Write the mean of the weights of `paths` as the checkpoint `out`; a path given twice counts twice.

    Runs that start from the same weights end in one basin of the loss: their mean is better than each of
    them, at no extra cost (Wortsman et al. 2022, "Model soups", arXiv:2203.05482). The rest of `out`,
    such as its options and the ids of words, comes from the first. Raises `DataError` for models with
    different shapes or vocabularies.
    """
    total: dict[str, torch.Tensor] = {}
    first, vocabulary, options, contents = checkpoint.load_model(paths[0])
    for path in paths:
        model, words, *_ = checkpoint.load_model(path)
        if model.options != first.options or words.words != vocabulary.words:
            raise DataError(f"{path} cannot be averaged with {paths[0]}: its architecture or words differ")
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                total[name] = total.get(name, 0) + value / len(paths)
            else:
                total.setdefault(name, value)
    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.save(
        out,
        {
            "options": options.to_dict(),
            "vocabulary": list(vocabulary.words),
            "confidence": contents.get("confidence"),
            "model": checkpoint.halved(total),
            "history": contents.get("history", []),
        },
    )
