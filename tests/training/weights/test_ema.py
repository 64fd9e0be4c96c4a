"""The moving average of weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from captioner.training.weights.averages import MovingAverage


def test_the_average_by_hand() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)
    average = MovingAverage(model, 0.5)
    expected = 1.0
    for update, value in enumerate([2.0, -3.0, 5.0] * 6, start=1):
        model.weight.data.fill_(value)
        average.update(model)
        decay = min(0.5, update / (update + 10))
        expected = decay * expected + (1 - decay) * value
    assert float(average.values["weight"]) == pytest.approx(expected, rel=1e-5)


def test_it_is_lent_in_half_precision_and_taken_back() -> None:
    model = nn.Linear(3, 2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    average = MovingAverage(model, 0.9)
    average.values["weight"].fill_(0.1)
    with pytest.raises(KeyError), average.applied(model):
        assert float(model.weight.detach()[0, 0]) == float(torch.tensor(0.1).half())
        torch.testing.assert_close(model.bias, before["bias"].half().float(), rtol=0, atol=0)
        raise KeyError
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])


def test_a_growing_decay_forgets_the_start() -> None:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(100.0)
    average = MovingAverage(model, 0.999)
    model.weight.data.fill_(1.0)
    for _ in range(60):
        average.update(model)
    assert float(average.values["weight"]) < 1.01
