"""Each attention against a second computation: its equation, or PyTorch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.attentions import (
    BATCH,
    CELLS,
    GRID,
    HEADS,
    HIDDEN,
    QUERIES,
    QUERY,
    attend,
    by_hand,
    half_mask,
    make,
    same,
    softmax,
    tensors,
)
from torch import Tensor
from torch.nn import functional as F

from captioner.errors import DataError
from captioner.nn.attention import (
    AdditiveAttention,
    AttentionOnAttention,
    GeneralAttention,
    MultiHeadAttention,
    NoAttention,
    ScaledDotProductAttention,
    Sentinel,
    VisualSentinelAttention,
)
from captioner.nn.attention.additive import _RecomputedScores


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

    torch.testing.assert_close(_RecomputedScores.apply(*inputs), additive_scores(*inputs))
    upstream = torch.randn(2, 3, 5, dtype=torch.float64)
    ours = torch.autograd.grad(_RecomputedScores.apply(*inputs), inputs, upstream)
    theirs = torch.autograd.grad(additive_scores(*inputs), inputs, upstream)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their)


def test_recomputed_scores_are_summed_in_float32_under_autocast() -> None:
    inputs = [torch.randn(64, 20, 16).bfloat16(), torch.randn(64, 49, 16).bfloat16(), torch.randn(16)]
    inputs = [value.requires_grad_() for value in inputs]
    exact = [value.detach().float().requires_grad_() for value in inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = _RecomputedScores.apply(*inputs)
    expected = additive_scores(*exact)
    torch.testing.assert_close(scores, expected)
    upstream = torch.randn(64, 20, 49)
    ours = torch.autograd.grad(scores, inputs, upstream)
    theirs = torch.autograd.grad(expected, exact, upstream)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their.to(our.dtype), rtol=1e-2, atol=1e-3)


def additive_scores(query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    return torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)) @ weight


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
