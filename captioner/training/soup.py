"""Stages that are trained several times from the same weights, and the mean of the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Soup:
    """The initial weights of a stage, from which each of its runs starts, and the sum of the weights that
    the runs reached. Runs from the same weights end in one basin of the loss, and their mean is better
    than each of them (Wortsman et al. 2022, "Model soups", arXiv:2203.05482).
    """

    def __init__(self, model: nn.Module) -> None:
        self.found = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.total = {name: torch.zeros_like(value) for name, value in self.found.items()}
        self.runs = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        self.runs += 1
        torch._foreach_add_(list(self.total.values()), [values[name] for name in self.total])

    def mean(self) -> dict[str, Tensor]:
        return {name: value / self.runs for name, value in self.total.items()}

    def state(self) -> dict[str, Any]:
        return {"found": self.found, "total": self.total, "runs": self.runs}

    def resume(self, state: Mapping[str, Any]) -> None:
        self.found, self.total, self.runs = state["found"], state["total"], state["runs"]
