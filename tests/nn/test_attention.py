"""What every registered attention promises."""

from __future__ import annotations

import pytest
import torch
from support.attentions import BATCH, CELLS, GRID, HEADS, QUERIES, attend, half_mask, make, tensors
from torch import Tensor

from captioner.errors import DataError
from captioner.nn.attention import ATTENTIONS, Attention


@pytest.fixture(params=sorted(ATTENTIONS))
def attention(request: pytest.FixtureRequest) -> Attention:
    return make(ATTENTIONS[request.param])


def test_gradients_are_those_of_finite_differences(attention: Attention) -> None:
    attention.double()
    query, grid, sentinel = (value.double().requires_grad_() for value in tensors())

    def looked(query: Tensor, grid: Tensor, sentinel: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return attend(attention, query, grid, half_mask(), sentinel)

    assert torch.autograd.gradcheck(looked, (query, grid, sentinel, *attention.parameters()))


def test_weights_are_shares(attention: Attention) -> None:
    query, grid, sentinel = tensors()
    context, weights = attend(attention, query, grid, None, sentinel)
    assert context.shape == (BATCH, QUERIES, GRID) and weights.shape == (BATCH, QUERIES, CELLS)
    assert (weights >= 0).all()
    if attention.has_sentinel:
        assert ((weights.sum(-1) > 0) & (weights.sum(-1) < 1)).all()
    else:
        torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, QUERIES))


def test_one_query_is_as_that_of_many(attention: Attention) -> None:
    query, grid, sentinel = tensors()
    context, weights = attend(attention, query, grid, None, sentinel)
    alone, alone_weights = attend(attention, query[:, 2], grid, None, sentinel[:, 2])
    torch.testing.assert_close(alone, context[:, 2])
    torch.testing.assert_close(alone_weights, weights[:, 2])


def test_a_masked_cell_changes_nothing_to_the_bit(attention: Attention) -> None:
    query, grid, sentinel = tensors()
    mask = half_mask()
    other = grid.clone()
    other[~mask] = 1000.0
    context, weights = attend(attention, query, grid, mask, sentinel)
    again, weights_again = attend(attention, query, other, mask, sentinel)
    assert torch.equal(again, context) and torch.equal(weights_again, weights)
    assert (weights.transpose(1, 2)[~mask] == 0).all()
    # The same as if the cell were not there.
    without, fewer = attend(attention, query[1:2], grid[1:2, mask[1]], None, sentinel[1:2])
    torch.testing.assert_close(without, context[1:2])
    torch.testing.assert_close(fewer, weights[1:2][..., mask[1]])


def test_a_mask_that_hides_nothing_changes_nothing(attention: Attention) -> None:
    query, grid, sentinel = tensors()
    open_ = attend(attention, query, grid, torch.ones(BATCH, CELLS, dtype=torch.bool), sentinel)
    for found, expected in zip(open_, attend(attention, query, grid, None, sentinel), strict=True):
        assert torch.equal(found, expected)


def test_an_image_with_no_cell_to_look_at_is_an_error(attention: Attention) -> None:
    query, grid, sentinel = tensors()
    mask = torch.tensor([[True] * CELLS, [False] * CELLS, [True] * CELLS])
    with pytest.raises(DataError, match="image 2 of the batch has no cell to look at"):
        attend(attention, query, grid, mask, sentinel)


def test_in_a_graph_an_image_with_no_cell_to_look_at_gets_zeros(attention: Attention) -> None:
    query, grid, sentinel = tensors()
    mask = torch.tensor([[True] * CELLS, [False] * CELLS, [True] * CELLS])

    class Graph(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(
            self, query: Tensor, grid: Tensor, mask: Tensor, sentinel: Tensor
        ) -> tuple[Tensor, Tensor]:
            return attend(self.attention, query, grid, mask, sentinel)

    with torch.no_grad():
        graph = torch.export.export(Graph(), (query, grid, mask, sentinel)).module()
        context, weights = graph(query, grid, mask, sentinel)
    assert (weights[1] == 0).all() and (context[1] == 0).all()
    expected, expected_weights = attend(attention, query[::2], grid[::2], mask[::2], sentinel[::2])
    torch.testing.assert_close(context[::2], expected)
    torch.testing.assert_close(weights[::2], expected_weights)


def test_maps_of_heads_have_the_attention_as_their_mean(attention: Attention) -> None:
    query, grid, sentinel = tensors()
    mask = half_mask()
    keys = attention.keys(grid)
    _, weights = attention(query, keys, attention.values(grid), mask, sentinel)
    maps = attention.maps(query, keys, mask)
    if attention.heads == 1:
        assert maps is None
        return
    assert maps is not None and maps.shape == (BATCH, QUERIES, HEADS, CELLS)
    torch.testing.assert_close(maps.mean(dim=2), weights)
    torch.testing.assert_close(maps.sum(-1), torch.ones(BATCH, QUERIES, HEADS))
    assert (maps[:, :, 0] - maps[:, :, 1]).abs().max() > 1e-3
