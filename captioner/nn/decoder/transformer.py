"""A Transformer that attends to the grid in every layer."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from captioner.errors import DataError
from captioner.nn.attention import Attention
from captioner.nn.blocks import feed_forward, join_heads, masked_mean, sinusoids, split_heads
from captioner.nn.decoder.base import (
    Decoder,
    DecoderSizes,
    Step,
    Tensors,
    every_cell,
    expand_beams,
)
from captioner.nn.decoder.embedding import TiedEmbedding

EXPANSION = 4
"""Inner features of the feed-forward layers per hidden feature, as in the paper."""


class TransformerDecoder(Decoder):
    """The decoder of Vaswani et al. 2017 (arXiv:1706.03762) with the norms in front (Xiong et al. 2020,
    arXiv:2002.04745).

        x[t] = N sqrt(embedding) E y[t-1] + s(t)            y: words, E (vocabulary, embedding), s: sinusoids
        in each layer, in several heads of d features:
            q[t], k[t], v[t] = W norm(x[t])                 W (3 hidden, hidden)
            x[t] += O sum_u softmax_u(q[t] · k[u] / sqrt(d)) v[u]          over u = -1, 0, …, t
            c[t], a[t] = attention(norm(x[t]), g)           an attention of its own, g: grid
            x[t] += C c[t]                                  C (hidden, features)
            x[t] += W2 relu(W1 norm(x[t]))                  W1 (4 hidden, hidden)
        p(y[t]) = softmax(E (L norm(x[t])) + b)             L (embedding, hidden), tied embeddings

    k[-1], v[-1] = I mean(g), I (2 hidden, features), precede the words: the image as a whole, as in the
    initial state of an LSTM. The map of a word is the last layer's a[t], or the mean of its heads.

    The state is what later words attend to: for each layer k and v, (batch, beams, 1 + words so far,
    2 hidden), longer by one with every step. All steps of known captions are computed in one call.

    Any attention can be used, one in each layer; the paper's is multi_head. Raises `DataError` for a visual
    sentinel, which needs the cell of an LSTM, and if `hidden` is not a multiple of `heads`.
    """

    def __init__(self, attention: Attention, sizes: DecoderSizes) -> None:
        super().__init__(attention, sizes)
        if attention.has_sentinel:
            raise DataError(
                "a visual sentinel needs the cell of an LSTM, which the transformer does not have"
            )
        if sizes.hidden % sizes.heads:
            raise DataError(
                f"hidden must be a multiple of attention_heads, got {sizes.hidden} and {sizes.heads}"
            )
        self.embedding = TiedEmbedding(sizes.vocabulary, sizes.embedding)
        self.input = nn.Linear(sizes.embedding, sizes.hidden)
        # All layers start with equal weights, as in PyTorch's `nn.TransformerDecoder`; their inputs differ.
        self.layers = nn.ModuleList(
            _Layer(copy.deepcopy(attention), sizes.features, sizes.hidden, sizes.heads, sizes.dropout)
            for _ in range(sizes.layers)
        )
        self.norm = nn.LayerNorm(sizes.hidden)
        self.output = nn.Linear(sizes.hidden, sizes.embedding)
        self.dropout = nn.Dropout(sizes.dropout)

    def prepare(
        self, grid: Tensor, mask: Tensor | None = None, deepest: Tensor | None = None
    ) -> tuple[Tensors, Tensors]:
        mask = every_cell(grid) if mask is None else mask
        mean = masked_mean(grid, mask)
        memory, state = {"mask": mask}, {}
        for number, layer in enumerate(self._layers()):
            memory[f"keys{number}"] = layer.attention.keys(grid)
            values = layer.attention.values(grid)
            # One tensor is kept once, by one name: an exported graph names each of its outputs once.
            memory["values" if values is grid else f"values{number}"] = values
            state[f"words{number}"] = layer.image(mean)[:, None, None]
        return memory, state

    def step(self, tokens: Tensor, memory: Tensors, state: Tensors) -> Step:
        hidden, state, attention, queries = self._read(tokens.unsqueeze(2), memory, state)
        last = len(self.layers) - 1
        maps = self._layers()[last].attention.maps(queries, memory[f"keys{last}"], memory["mask"])
        return Step(self._logits(hidden.squeeze(2), memory), state, attention.squeeze(2), maps)

    def forward(self, tokens: Tensor, memory: Tensors, state: Tensors) -> tuple[Tensor, Tensor]:
        hidden, _, attention, _ = self._read(tokens, memory, expand_beams(state, tokens.shape[1]))
        return self._logits(hidden, memory), attention

    def _read(
        self, tokens: Tensor, memory: Tensors, state: Tensors
    ) -> tuple[Tensor, Tensors, Tensor, Tensor]:
        """Continue from `state` with words int64 (batch, captions, length): x (batch, captions, length,
        hidden), the new state, the maps (batch, captions, length, cells) and the queries of the last
        layer."""
        length, before = tokens.shape[2], state["words0"].shape[2]
        positions = torch.arange(length, device=tokens.device) + (before - 1)
        hidden = self.input(self.embedding(tokens))
        hidden = self.dropout(hidden + sinusoids(positions, hidden.shape[-1]))
        future = None
        if length > 1:
            future = torch.ones(length, before + length, dtype=torch.bool, device=tokens.device)
            future = future.triu(before + 1)
        after: Tensors = {}
        for number, layer in enumerate(self._layers()):
            hidden, after[f"words{number}"] = layer.listen(hidden, state[f"words{number}"], future)
            values = memory[f"values{number}" if f"values{number}" in memory else "values"]
            hidden, attention, queries = layer.look(hidden, memory[f"keys{number}"], values, memory["mask"])
            hidden = layer.think(hidden)
        return hidden, after, attention, queries

    def _layers(self) -> list[_Layer]:
        return cast("list[_Layer]", list(self.layers))

    def _logits(self, hidden: Tensor, memory: Tensors) -> Tensor:
        return self.embedding.logits(self.output(self.norm(hidden)), memory.get("rare"))


class _Layer(nn.Module):
    """Self-attention over the words, attention over the grid, feed-forward; x is (batch, captions, length,
    hidden)."""

    def __init__(self, attention: Attention, features: int, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.image = nn.Linear(features, 2 * hidden)
        self.word_norm = nn.LayerNorm(hidden)
        self.words = nn.Linear(hidden, 3 * hidden)
        self.heard = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = attention
        self.seen = nn.Linear(features, hidden)
        self.inner_norm = nn.LayerNorm(hidden)
        self.inner = feed_forward(hidden, EXPANSION * hidden, dropout)
        self.dropout = nn.Dropout(dropout)

    def listen(self, x: Tensor, before: Tensor, future: Tensor | None) -> tuple[Tensor, Tensor]:
        """`before` (batch, captions, words before, 2 hidden); `future` bool (length, all words), True for
        words that may not be used yet. Returns x, and the keys and values of all words, shaped as
        `before`."""
        query, new = self.words(self.word_norm(x)).split([x.shape[-1], 2 * x.shape[-1]], dim=-1)
        words = torch.cat([before, new], dim=2)
        query, key, value = (split_heads(part, self.heads) for part in (query, *words.chunk(2, dim=-1)))
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        if future is not None:
            scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        heard = join_heads(torch.softmax(scores, dim=-1) @ value)
        return x + self.dropout(self.heard(heard)), words

    def look(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns x, maps (batch, captions, length, cells), queries (batch, captions * length, …)."""
        queries = self.attention_norm(x).flatten(1, 2)
        context, attention = self.attention(queries, keys, values, mask)
        shape = x.shape[1:3]
        return (
            x + self.dropout(self.seen(context)).unflatten(1, shape),
            attention.unflatten(1, shape),
            queries,
        )

    def think(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.inner(self.inner_norm(x)))
