"""Attention that looks at one cell."""

from __future__ import annotations

import torch
from support.attentions import BATCH, CELLS, GRID, HIDDEN, QUERIES, QUERY, attend, half_mask, make, tensors
from torch import Tensor
from torch.nn import functional as F

from captioner.nn.attention import AdditiveAttention, HardAttention, drawn_cells


def distances(context: Tensor, grid: Tensor) -> Tensor:
    """(…, queries, features), (…, cells, features) -> (…, queries, cells); 0 for the very same."""
    return (context.unsqueeze(-2) - grid.unsqueeze(-3)).abs().amax(-1)


def test_served_hard_attention_looks_at_the_likeliest_cell() -> None:
    hard, soft = make(HardAttention), make(AdditiveAttention)
    soft.load_state_dict(hard.state_dict())
    query, grid, _ = tensors()
    mask = half_mask()
    context, weights = attend(hard, query, grid, mask)
    _, policy = attend(soft, query, grid, mask)
    cells = policy.argmax(-1)
    assert torch.equal(weights, F.one_hot(cells, CELLS).float())
    for image in range(BATCH):
        assert torch.equal(context[image], grid[image, cells[image]])


def test_of_cells_alike_but_for_rounding_the_first_is_taken() -> None:
    attention = make(HardAttention)
    query, grid, _ = tensors()
    _, weights = attend(attention, query, grid)
    best = int(weights[0, 0].argmax())
    for noise in (0.0, 1e-7, -1e-7):
        doubled = torch.cat(
            [grid[:1, best : best + 1] - noise, grid[:1], grid[:1, best : best + 1] + noise], dim=1
        )
        _, found = attend(attention, query[:1, :1], doubled)
        assert int(found[0, 0].argmax()) == 0


def test_hard_attention_draws_cells_as_its_policy_says() -> None:
    """Half of the images see one cell a query, as often as the policy says; the others the mean over all."""
    torch.manual_seed(3)
    attention = HardAttention(QUERY, GRID, HIDDEN).train()
    grid = torch.randn(1, CELLS, GRID).expand(64, -1, -1)
    query = torch.randn(1, 1, QUERY).expand(64, 500, -1)
    with torch.no_grad():
        attention.score.weight.mul_(4)
        context, policy = attend(attention, query, grid)
    torch.testing.assert_close(policy, policy[:1, :1].expand_as(policy))
    mean = policy[0, 0] @ grid[0]
    is_mean = (context - mean).abs().amax(-1) < 1e-5
    assert (is_mean.all(dim=1) | ~is_mean.any(dim=1)).all()
    assert 20 < is_mean[:, 0].sum() < 44
    distance = distances(context[~is_mean[:, 0]].flatten(0, 1), grid[0])
    assert (distance.amin(-1) == 0).all()
    shares = F.one_hot(distance.argmin(-1), CELLS).float().mean(0)
    torch.testing.assert_close(shares, policy[0, 0], atol=0.02, rtol=0)


def test_what_was_drawn_is_told_while_somebody_asks() -> None:
    attention = HardAttention(QUERY, GRID, HIDDEN).train()
    query, grid, _ = tensors()
    with drawn_cells(torch.nn.Sequential(attention)) as drawn:
        for _ in range(8):
            context, policy = attend(attention, query, grid)
            cells = distances(context, grid).argmin(-1)
            for image in range(BATCH):
                if (distances(context, grid)[image].amin(-1) == 0).all():
                    expected = policy[image].gather(-1, cells[image][:, None])[:, 0].log()
                else:
                    expected = torch.zeros(QUERIES)
                torch.testing.assert_close(drawn[-1][image], expected)
    attend(attention, query, grid)
    assert len(drawn) == 8 and attention.drawn is None
    with drawn_cells(make(AdditiveAttention)) as drawn:
        pass
    assert drawn == []
