"""Additive attention (Bahdanau et al. 2014, arXiv:1409.0473; on image grids Xu et al. 2015)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from captioner.nn.attention.base import Attention


class AdditiveAttention(Attention):
    """A one-layer network of state and cell.

        e[t, i] = w · tanh(Q h[t] + K g[i] + b)        a[t] = softmax(e[t])        c[t] = sum_i a[t, i] g[i]

    h[t] (query features), g[i] (grid features); Q (hidden, query features), K (hidden, grid features),
    w and b (hidden). The keys are K g[i] + b.
    """

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        super().__init__(query_features, grid_features, hidden, heads)
        self.query = nn.Linear(query_features, hidden, bias=False)
        self.key = nn.Linear(grid_features, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def keys(self, grid: Tensor) -> Tensor:
        return self.key(grid)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        query = self.query(query)
        weight = self.score.weight[0]
        if torch.is_grad_enabled() and query.device.type == "cpu":
            return _RecomputedScores.apply(query, keys, weight)
        return torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)) @ weight.to(query.dtype)


class _RecomputedScores(torch.autograd.Function):
    """The same scores without keeping (batch, queries, cells, hidden) for the gradient.

    That tensor is half a gigabyte for a batch of 160 captions; on a CPU, writing and reading it took
    longer than the rest of the step. Here one image at a time stays in the cache, and the gradient
    computes it again. Under autocast too, everything is computed in float32: bfloat16 has too few digits
    for the sum of the weight's gradient over a batch.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, weight)
        hidden = query.new_empty(query.shape[1], keys.shape[1], query.shape[2])
        scores = query.new_empty(query.shape[0], query.shape[1], keys.shape[1])
        for image in range(len(query)):
            _hidden(query[image], keys[image], hidden)
            torch.matmul(hidden, weight, out=scores[image])
        return scores

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, weight = ctx.saved_tensors
        hidden = query.new_empty(query.shape[1], keys.shape[1], query.shape[2])
        for_query, for_keys = torch.empty_like(query), torch.empty_like(keys)
        for_weight = torch.zeros_like(weight)
        for image, gradient in enumerate(gradients[0]):
            _hidden(query[image], keys[image], hidden)
            for_weight += hidden.flatten(0, 1).t() @ gradient.flatten()
            # d tanh(x) = 1 - tanh(x)^2; the weight is the same for all and is multiplied in at the end.
            hidden.square_().neg_().add_(1).mul_(gradient.unsqueeze(-1))
            torch.sum(hidden, 1, out=for_query[image])
            torch.sum(hidden, 0, out=for_keys[image])
        return for_query * weight, for_keys * weight, for_weight


def _hidden(query: Tensor, keys: Tensor, out: Tensor) -> None:
    """tanh(query + key) for all pairs: (queries, hidden), (cells, hidden) -> (queries, cells, hidden)."""
    torch.add(query.unsqueeze(1), keys.unsqueeze(0), out=out).tanh_()
