"""Every registered attention, kept to what all promise; and each against a second computation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.nn.attention import (
    ATTENTIONS,
    AdditiveAttention,
    Attention,
    AttentionOnAttention,
    GeneralAttention,
    HardAttention,
    MultiHeadAttention,
    NoAttention,
    ScaledDotProductAttention,
    Sentinel,
    VisualSentinelAttention,
    drawn_cells,
)
from captioner.nn.attention.additive import _RecomputedScores

BATCH, QUERIES, CELLS, QUERY, GRID, HIDDEN, HEADS = 3, 4, 6, 5, 7, 8, 2


def tensors() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, grid and sentinels."""
    return (
        torch.randn(BATCH, QUERIES, QUERY),
        torch.randn(BATCH, CELLS, GRID),
        torch.randn(BATCH, QUERIES, QUERY),
    )


def half_mask() -> Tensor:
    mask = torch.ones(BATCH, CELLS, dtype=torch.bool)
    mask[0, 1] = mask[1, [0, 3]] = False
    return mask


def make(kind: type[Attention]) -> Any:
    return kind(QUERY, GRID, HIDDEN, HEADS).eval()


def attend(
    attention: Attention,
    query: Tensor,
    grid: Tensor,
    mask: Tensor | None = None,
    sentinel: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As a decoder calls it."""
    return attention(query, attention.keys(grid), attention.values(grid), mask, sentinel)


def by_hand(attention: Attention) -> dict[str, np.ndarray]:
    """The parameters in double precision."""
    return {name: p.detach().double().numpy() for name, p in attention.named_parameters()}


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def same(found: Tensor, expected: np.ndarray | Tensor) -> None:
    np.testing.assert_allclose(found.detach().numpy(), np.asarray(expected), rtol=1e-4, atol=1e-6)


@pytest.fixture(params=sorted(ATTENTIONS))
def attention(request: pytest.FixtureRequest) -> Attention:
    return make(ATTENTIONS[request.param])


# What all promise.


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


# Each against its equation.


@pytest.mark.parametrize("grad", [False, True])
def test_additive_attention_is_what_its_equation_says(grad: bool) -> None:
    attention = make(AdditiveAttention)
    query, grid, _ = tensors()
    with torch.set_grad_enabled(grad):
        context, weights = attend(attention, query, grid)
    p = by_hand(attention)
    h, g = query.double().numpy()[:, :, None], grid.double().numpy()[:, None]
    hidden = np.tanh(h @ p["query.weight"].T + g @ p["key.weight"].T + p["key.bias"])
    expected = softmax(hidden @ p["score.weight"][0])
    same(weights, expected)
    same(context, expected @ grid.double().numpy())


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


def test_general_attention_is_what_its_equation_says() -> None:
    attention = make(GeneralAttention)
    query, grid, _ = tensors()
    context, weights = attend(attention, query, grid)
    p = by_hand(attention)
    h, g = query.double().numpy(), grid.double().numpy()
    expected = softmax(np.einsum("bqm,mn,bcn->bqc", h, p["key.weight"], g))
    same(weights, expected)
    same(context, np.tanh(np.concatenate([h, expected @ g], axis=-1) @ p["join.weight"].T))


def test_general_attention_starts_with_scores_that_leave_a_choice() -> None:
    attention = GeneralAttention(512, 400, HIDDEN)
    scores = attention.scores(torch.randn(1, 64, 512), attention.keys(torch.randn(1, 196, 400)))
    assert 0.8 < scores.std() < 1.2


def test_scaled_dot_product_attention_is_pytorchs() -> None:
    attention = make(ScaledDotProductAttention)
    query, grid, _ = tensors()
    mask = half_mask()
    context, weights = attend(attention, query, grid, mask)
    expected = F.scaled_dot_product_attention(
        attention.query(query), attention.key(grid), attention.value(grid), attn_mask=mask[:, None]
    )
    same(context, expected.detach())
    p = by_hand(attention)
    q = query.double().numpy() @ p["query.weight"].T + p["query.bias"]
    k = grid.double().numpy() @ p["key.weight"].T + p["key.bias"]
    scores = np.where(mask[:, None], q @ k.transpose(0, 2, 1) / math.sqrt(HIDDEN), -np.inf)
    same(weights, softmax(scores))


def test_without_the_scale_512_dimensions_leave_one_cell_and_no_gradient() -> None:
    size, cells = 512, 196
    attention = ScaledDotProductAttention(size, size, size)
    for layer in (attention.query, attention.key):  # keep the variance of what goes in, which is 1
        torch.nn.init.normal_(layer.weight, std=size**-0.5)
        torch.nn.init.zeros_(layer.bias)
    query, grid, words = torch.randn(1, 64, size), torch.randn(1, cells, size), torch.randn(1, 64, cells)

    def look(scale: float) -> tuple[float, float, float]:
        """Mean largest weight, mean entropy as a share of that of equal weights, norm of the gradient that
        scores get from a loss of random slope."""
        attention.scale = scale
        scores = attention.scores(query, attention.keys(grid)).detach().requires_grad_()
        weights = torch.softmax(scores, dim=-1)
        (weights * words).sum().backward()
        entropy = torch.special.entr(weights).sum(-1).mean() / math.log(cells)
        assert scores.grad is not None
        return (
            float(weights.amax(-1).mean().detach()),
            float(entropy.detach()),
            float(scores.grad.norm(dim=-1).median()),
        )

    assert attention.scale == size**-0.5
    peak, entropy, gradient = look(size**-0.5)
    assert peak < 0.1 and entropy > 0.85
    unscaled_peak, unscaled_entropy, unscaled_gradient = look(1.0)
    assert unscaled_peak > 0.9 and unscaled_entropy < 0.1
    assert unscaled_gradient < gradient / 10


def test_multi_head_attention_is_pytorchs() -> None:
    size = 8  # PyTorch's has one size for all
    attention = MultiHeadAttention(size, size, size, HEADS).eval()
    query, grid = torch.randn(BATCH, QUERIES, size), torch.randn(BATCH, CELLS, size)
    mask = half_mask()
    context, weights = attend(attention, query, grid, mask)
    layers = attention.query, attention.key, attention.value
    assert isinstance(attention.output, torch.nn.Linear)
    for average, found in ((True, weights), (False, attention.maps(query, attention.keys(grid), mask))):
        expected, maps = F.multi_head_attention_forward(
            query.transpose(0, 1),
            grid.transpose(0, 1),
            grid.transpose(0, 1),
            embed_dim_to_check=size,
            num_heads=HEADS,
            in_proj_weight=torch.cat([layer.weight for layer in layers]),
            in_proj_bias=torch.cat([layer.bias for layer in layers]),
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=attention.output.weight,
            out_proj_bias=attention.output.bias,
            training=False,
            key_padding_mask=~mask,
            need_weights=True,
            average_attn_weights=average,
        )
        assert maps is not None and found is not None
        same(context, expected.detach().transpose(0, 1))
        same(found, maps.detach() if average else maps.detach().transpose(1, 2))


def test_heads_share_the_hidden_size() -> None:
    with pytest.raises(
        DataError, match="attention_hidden must be a multiple of attention_heads, got 8 and 3"
    ):
        MultiHeadAttention(QUERY, GRID, 8, 3)


def test_attention_on_attention_is_what_its_equation_says() -> None:
    attention = make(AttentionOnAttention)
    query, grid, _ = tensors()
    context, weights = attend(attention, query, grid)
    p = by_hand(attention)
    h, g = query.double().numpy(), grid.double().numpy()
    q, k, v = (x @ p[f"{n}.weight"].T + p[f"{n}.bias"] for n, x in (("query", h), ("key", g), ("value", g)))
    size = HIDDEN // HEADS
    parts = [np.s_[..., head * size : (head + 1) * size] for head in range(HEADS)]
    maps = [softmax(q[part] @ k[part].transpose(0, 2, 1) / math.sqrt(size)) for part in parts]
    same(weights, np.mean(maps, axis=0))
    seen = np.concatenate([m @ v[part] for m, part in zip(maps, parts, strict=True)], axis=-1)
    out = np.concatenate([seen, h], axis=-1) @ p["output.weight"].T + p["output.bias"]
    same(context, out[..., :GRID] / (1 + np.exp(-out[..., GRID:])))


@pytest.mark.parametrize("grad", [False, True])
def test_the_visual_sentinel_is_what_its_equation_says(grad: bool) -> None:
    attention = make(VisualSentinelAttention)
    query, grid, sentinel = tensors()
    with torch.set_grad_enabled(grad):
        context, weights = attend(attention, query, grid, None, sentinel)
    p = by_hand(attention)
    h, g, s = (value.double().numpy() for value in (query, grid, sentinel))
    cells = g @ p["key.weight"].T + p["key.bias"]
    known = s @ p["sentinel_key.weight"].T + p["sentinel_key.bias"]
    places = np.concatenate(
        [np.broadcast_to(cells[:, None], (BATCH, QUERIES, *cells.shape[1:])), known[:, :, None]], 2
    )
    expected = softmax(np.tanh((h @ p["query.weight"].T)[:, :, None] + places) @ p["score.weight"][0])
    same(weights, expected[..., :-1])
    same(context, expected[..., :-1] @ g + expected[..., -1:] * (s @ p["sentinel_value.weight"].T))


def test_a_sentinel_that_outscores_the_cells_takes_the_attention() -> None:
    attention = make(VisualSentinelAttention)
    query, grid, sentinel = tensors()
    with torch.no_grad():
        attention.score.weight.fill_(5.0)
        attention.key.bias.fill_(-20.0)
        attention.sentinel_key.bias.fill_(20.0)
    context, weights = attend(attention, query, grid, half_mask(), sentinel)
    assert weights.sum(-1).max() < 1e-6
    torch.testing.assert_close(context, attention.sentinel_value(sentinel))


def test_the_sentinel_is_a_gate_on_the_cell_of_an_lstm() -> None:
    """The equations of an LSTM with a fifth gate, written out."""
    sentinel, lstm = Sentinel(QUERY, HIDDEN), torch.nn.LSTM(QUERY, HIDDEN)
    inputs = torch.randn(4, BATCH, QUERY)
    states, (_, cell) = lstm(inputs)
    found = sentinel(inputs[-1], states[-2], cell[0])
    x, h, m = (value.detach().double().numpy() for value in (inputs[-1], states[-2], cell[0]))
    p = {name: value.detach().double().numpy() for name, value in sentinel.named_parameters()}
    gate = x @ p["gate.weight"][:, :QUERY].T + h @ p["gate.weight"][:, QUERY:].T + p["gate.bias"]
    same(found, np.tanh(m) / (1 + np.exp(-gate)))


def test_no_attention_is_the_mean() -> None:
    attention = make(NoAttention)
    query, grid, _ = tensors()
    mask = half_mask()
    assert list(attention.parameters()) == []
    context, weights = attend(attention, query, grid, mask)
    for image in range(BATCH):
        same(context[image], grid[image, mask[image]].mean(dim=0).expand(QUERIES, -1))
        same(weights[image, 0], mask[image].double() / mask[image].sum())


# Hard attention.


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
