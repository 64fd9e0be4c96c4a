"""Adaptive attention with a visual sentinel (Lu et al. 2017, arXiv:1612.01887)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.nn.attention.additive import AdditiveAttention
from captioner.nn.attention.base import masked_softmax


class VisualSentinelAttention(AdditiveAttention):
    """Additive attention over the cells and one additional place, for what is known without looking.

        e[t, i] = w · tanh(Q h[t] + K g[i] + b)               the cells, as in `AdditiveAttention`
        e[t, 0] = w · tanh(Q h[t] + S s[t] + b')              the sentinel
        a[t] = softmax(e[t])
        c[t] = a[t, 0] V s[t] + sum_{i > 0} a[t, i] g[i]

    h[t] and the sentinel s[t] (query features; see `Sentinel`), g[i] (grid features); Q and S (hidden, query
    features), K (hidden, grid features), V (grid features, query features), w, b and b' (hidden). The weights
    returned are those of the cells, which sum to 1 - a[t, 0]. In the paper, grid and state have the same
    size, and V is the identity.
    """

    has_sentinel = True

    def __init__(self, query_features: int, grid_features: int, hidden: int, heads: int = 8) -> None:
        super().__init__(query_features, grid_features, hidden, heads)
        self.sentinel_key = nn.Linear(query_features, hidden)
        self.sentinel_value = nn.Linear(query_features, grid_features, bias=False)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, sentinel: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if sentinel is None:
            raise TypeError("this attention needs a sentinel")
        blind = self.score(torch.tanh(self.query(query) + self.sentinel_key(sentinel)))
        # The sentinel stands behind the cells; no mask hides it.
        scores = torch.cat([self.scores(query, keys), blind], dim=-1)
        if mask is not None:
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        weights, share = masked_softmax(scores, mask).tensor_split([scores.shape[-1] - 1], dim=-1)
        return weights @ values + share * self.sentinel_value(sentinel), weights


class Sentinel(nn.Module):
    """What an LSTM knows without looking, through a separate gate.

        s[t] = sigmoid(X x[t] + H h[t-1] + b) * tanh(m[t])

    x[t] (input features) is the LSTM's input, h[t] and m[t] (hidden) its state and cell; X (hidden, input
    features), H (hidden, hidden), b (hidden). A decoder with an LSTM makes it for its attention.
    """

    def __init__(self, input_features: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(input_features + hidden, hidden)

    def forward(self, inputs: Tensor, before: Tensor, cell: Tensor) -> Tensor:
        """x[t] (…, input features), h[t-1] and m[t] (…, hidden) -> s[t] (…, hidden)."""
        return torch.sigmoid(self.gate(torch.cat([inputs, before], dim=-1))) * torch.tanh(cell)
