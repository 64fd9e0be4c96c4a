"""Losses, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from captioner.training.objectives.attention_entropy import attention_entropy
from captioner.training.objectives.bag_of_words import bag_of_words
from captioner.training.objectives.cross_entropy import cross_entropy
from captioner.training.objectives.doubly_stochastic import doubly_stochastic
from captioner.training.objectives.self_critical import advantages, policy_gradient

TARGETS = torch.tensor([[[4, 2, 0, 0], [5, 4, 2, 0]]])  # two captions of 1 and 2 words, padded


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy_is_the_mean_over_words(smoothing: float) -> None:
    logits = torch.randn(1, 2, 4, 7)
    log_probs = torch.log_softmax(logits, -1).numpy()
    losses = [
        -(1 - smoothing) * log_probs[0, row, column, word] - smoothing * log_probs[0, row, column].mean()
        for row in range(2)
        for column in range(4)
        if (word := int(TARGETS[0, row, column]))
    ]
    assert len(losses) == 5
    assert float(cross_entropy(logits, TARGETS, smoothing)) == pytest.approx(np.mean(losses), rel=1e-5)


def test_looking_at_all_cells_alike_costs_nothing() -> None:
    attention = torch.full((1, 2, 4, 5), 1 / 5)
    assert float(doubly_stochastic(attention, TARGETS)) == pytest.approx(0, abs=1e-9)


def test_cells_of_the_padding_do_not_count() -> None:
    """A masked image costs what it would without the masked cells."""
    attention = torch.softmax(torch.randn(2, 2, 4, 5), dim=-1)
    mask = torch.tensor([[True, True, False, True, False], [True] * 5])
    attention[0] = attention[0] * mask[0] / (attention[0] * mask[0]).sum(dim=-1, keepdim=True)
    targets = TARGETS.expand(2, -1, -1)
    parts = attention[:1, ..., mask[0]], attention[1:]
    alone = [float(doubly_stochastic(part, TARGETS)) for part in parts]
    assert float(doubly_stochastic(attention, targets, mask)) == pytest.approx(np.mean(alone), rel=1e-5)
    even = torch.zeros(1, 2, 4, 5)
    even[..., mask[0]] = 1 / 3
    assert float(doubly_stochastic(even, TARGETS, mask[:1])) == pytest.approx(0, abs=1e-9)


def test_what_looking_at_one_cell_costs() -> None:
    attention = torch.zeros(1, 2, 4, 5)
    attention[..., 0] = 1
    # Sums over time are 2 and 3 on one cell and 0 on four; padding is not counted.
    first = (2 / 5 - 2) ** 2 + 4 * (2 / 5) ** 2
    second = (3 / 5 - 3) ** 2 + 4 * (3 / 5) ** 2
    assert float(doubly_stochastic(attention, TARGETS)) == pytest.approx((first + second) / 2)


@pytest.mark.parametrize("sentinel", [0.0, 0.9])
def test_entropy_is_that_of_the_map_whatever_the_sentinel_takes(sentinel: float) -> None:
    attention = torch.full((1, 2, 4, 5), (1 - sentinel) / 5)
    assert float(attention_entropy(attention, TARGETS)) == pytest.approx(math.log(5), rel=1e-5)
    attention = torch.tensor([1 - sentinel, 0, 0, 0, 0]).expand(1, 2, 4, 5)
    assert float(attention_entropy(attention, TARGETS)) == pytest.approx(0, abs=1e-6)


def test_sharp_enough_maps_cost_nothing() -> None:
    attention = torch.full((1, 2, 4, 5), 0.2)
    assert float(attention_entropy(attention, TARGETS, above=1.0)) == pytest.approx(math.log(5) - 1, rel=1e-5)
    assert float(attention_entropy(attention, TARGETS, above=1.7)) == 0


def test_the_policy_gradient() -> None:
    logits = torch.randn(1, 2, 4, 7, requires_grad=True)
    better = torch.tensor([[1.5, -0.5]])
    loss = policy_gradient(logits, TARGETS, better)
    chosen = torch.log_softmax(logits.detach(), -1).gather(-1, TARGETS[..., None])[..., 0]
    expected = -(1.5 * chosen[0, 0, :2].sum() - 0.5 * chosen[0, 1, :3].sum()) / 5
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-5)
    loss.backward()
    assert logits.grad is not None
    assert (
        float(logits.grad[0, 0, 0, 4]) < 0 < float(logits.grad[0, 1, 0, 5])
    )  # up with one, down with the other
    assert not logits.grad[0, 0, 2:].any()


def test_an_advantage_is_over_the_other_samples() -> None:
    found = advantages(torch.tensor([[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]]))
    torch.testing.assert_close(found, torch.tensor([[1 - 4, 2 - 3.5, 6 - 1.5], [0.0, 0.0, 0.0]]))
    assert math.isclose(float(found.sum()), 0, abs_tol=1e-6)


def test_bag_of_words_is_the_cross_entropy_with_the_shares_of_the_words() -> None:
    logits = torch.randn(2, 5)
    log_probs = torch.log_softmax(logits, -1)
    counts = torch.tensor([[0, 0, 3.0, 1.0, 0], [0, 2.0, 0, 0, 0]])
    expected = -(0.75 * log_probs[0, 2] + 0.25 * log_probs[0, 3] + log_probs[1, 1]) / 2
    assert float(bag_of_words(logits, counts)) == pytest.approx(float(expected), rel=1e-5)
    assert float(bag_of_words(logits, torch.zeros(2, 5))) == 0  # captions without a word
