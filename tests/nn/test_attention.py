"""Attention, against a computation written down a second time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from captioner.nn.attention import ATTENTIONS, AdditiveAttention
from captioner.nn.attention.additive import _RecomputedScores

BATCH, QUERIES, CELLS, QUERY, GRID, HIDDEN = 3, 4, 6, 5, 7, 8


def tensors() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, QUERIES, QUERY), torch.randn(BATCH, CELLS, GRID)


@pytest.fixture(params=sorted(ATTENTIONS))
def attention(request: pytest.FixtureRequest) -> torch.nn.Module:
    return ATTENTIONS[request.param](QUERY, GRID, HIDDEN)


@pytest.mark.parametrize("grad", [False, True])
def test_additive_attention_is_what_its_equation_says(grad: bool) -> None:
    attention = AdditiveAttention(QUERY, GRID, HIDDEN)
    query, grid = tensors()
    with torch.set_grad_enabled(grad):
        context, weights = attention(query, attention.keys(grid), grid)
    values = {name: p.detach().double().numpy() for name, p in attention.named_parameters()}
    for image in range(BATCH):
        g = grid[image].double().numpy()
        for number in range(QUERIES):
            h = query[image, number].double().numpy()
            scores = np.array(
                [
                    values["score.weight"][0]
                    @ np.tanh(values["query.weight"] @ h + values["key.weight"] @ cell + values["key.bias"])
                    for cell in g
                ]
            )
            expected = np.exp(scores) / np.exp(scores).sum()
            np.testing.assert_allclose(weights[image, number].detach(), expected, rtol=1e-5)
            np.testing.assert_allclose(context[image, number].detach(), expected @ g, rtol=1e-4, atol=1e-6)


def test_scores_and_gradients_are_the_same_with_and_without_keeping_the_hidden_layer() -> None:
    query, keys, weight = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(4)
    inputs = [value.double().requires_grad_() for value in (query, keys, weight)]

    def plain(query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        return torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)) @ weight

    torch.testing.assert_close(_RecomputedScores.apply(*inputs), plain(*inputs))
    upstream = torch.randn(2, 3, 5, dtype=torch.float64)
    ours = torch.autograd.grad(_RecomputedScores.apply(*inputs), inputs, upstream)
    theirs = torch.autograd.grad(plain(*inputs), inputs, upstream)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)


def test_gradients_are_those_of_finite_differences(attention: torch.nn.Module) -> None:
    attention.double()
    query, grid = (value.double().requires_grad_() for value in tensors())
    parameters = list(attention.parameters())

    def attend(query: Tensor, grid: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return attention(query, attention.keys(grid), grid)

    assert torch.autograd.gradcheck(attend, (query, grid, *parameters))


def test_weights_are_shares(attention: torch.nn.Module) -> None:
    query, grid = tensors()
    context, weights = attention(query, attention.keys(grid), grid)
    assert context.shape == (BATCH, QUERIES, GRID) and weights.shape == (BATCH, QUERIES, CELLS)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, QUERIES))


def test_one_query_is_as_that_of_many(attention: torch.nn.Module) -> None:
    query, grid = tensors()
    keys = attention.keys(grid)
    context, weights = attention(query, keys, grid)
    alone, alone_weights = attention(query[:, 2], keys, grid)
    torch.testing.assert_close(alone, context[:, 2])
    torch.testing.assert_close(alone_weights, weights[:, 2])


def test_a_masked_cell_changes_nothing(attention: torch.nn.Module) -> None:
    query, grid = tensors()
    mask = torch.ones(BATCH, CELLS, dtype=torch.bool)
    mask[0, 1] = mask[1, [0, 3]] = False
    other = grid.clone()
    other[~mask] = 1000.0
    found = attention(query, attention.keys(grid), grid, mask)
    again = attention(query, attention.keys(other), other, mask)
    torch.testing.assert_close(again, found)
    weights = found[1]
    assert (weights.transpose(1, 2)[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, QUERIES))
    kept = grid[1:2, mask[1]]
    torch.testing.assert_close(attention(query[1:2], attention.keys(kept), kept)[0], found[0][1:2])


def test_with_no_cell_to_look_at_the_weights_are_zero(attention: torch.nn.Module) -> None:
    query, grid = tensors()
    mask = torch.tensor([[True] * CELLS, [False] * CELLS, [True] * CELLS])
    context, weights = attention(query, attention.keys(grid), grid, mask)
    assert (weights[1] == 0).all() and (context[1] == 0).all()
    assert torch.isfinite(weights).all()
