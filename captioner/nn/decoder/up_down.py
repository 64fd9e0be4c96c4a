"""Up-Down: the language state feeds back into attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.nn.attention import Attention, Sentinel
from captioner.nn.blocks import masked_mean
from captioner.nn.decoder.base import (
    Decoder,
    DecoderSizes,
    Step,
    Tensors,
    every_cell,
    expand_beams,
)
from captioner.nn.decoder.embedding import TiedEmbedding
from captioner.nn.decoder.lstm import lstm_cell


class UpDownDecoder(Decoder):
    """The two LSTMs of Anderson et al. 2018 (arXiv:1707.07998, section 3.2): one for attention, one for
    language, each with the other's state as input.

        h[t], m[t] = LSTM_1([s[t-1]; mean(g); sqrt(embedding) E y[t-1]], h[t-1], m[t-1])   the attention LSTM
        c[t], a[t] = attention(h[t], g)
        s[t], n[t] = LSTM_2([c[t]; h[t]], s[t-1], n[t-1])                         the language LSTM
        p(y[t]) = softmax(E (O s[t]) + b)

    y: words, E (vocabulary, embedding), g (cells, features): grid, h, m, s, n (hidden), all zero at first,
    O (embedding, hidden). In the paper the output is a matrix of its own; here it is tied to the embedding
    (see `TiedEmbedding`), O in between.

    Since h[t] depends on s[t-1], known captions are computed word by word. `TwoLSTMDecoder` leaves that out
    and trains faster. A visual sentinel is computed from LSTM_1, which the image's mean enters through its
    cell only.
    """

    def __init__(self, attention: Attention, sizes: DecoderSizes) -> None:
        super().__init__(attention, sizes)
        self.attention = attention
        self.sentinel = (
            Sentinel(sizes.hidden + sizes.embedding, sizes.hidden) if attention.has_sentinel else None
        )
        self.hidden = sizes.hidden
        self.embedding = TiedEmbedding(sizes.vocabulary, sizes.embedding)
        # The gates of LSTM_1, (4 hidden), in parts: of the words, all at once where they are known; of the
        # image, once; and of both states, [h[t-1]; s[t-1]], at every step.
        self.word_gates = nn.Linear(sizes.embedding, 4 * sizes.hidden)
        self.mean_gates = nn.Linear(sizes.features, 4 * sizes.hidden, bias=False)
        self.state_gates = nn.Linear(2 * sizes.hidden, 4 * sizes.hidden, bias=False)
        # Those of LSTM_2, of [c[t]; h[t]; s[t-1]].
        self.language_gates = nn.Linear(sizes.features + 2 * sizes.hidden, 4 * sizes.hidden)
        self.output = nn.Linear(sizes.hidden, sizes.embedding)
        self.dropout = nn.Dropout(sizes.dropout)

    def prepare(
        self, grid: Tensor, mask: Tensor | None = None, deepest: Tensor | None = None
    ) -> tuple[Tensors, Tensors]:
        mask = every_cell(grid) if mask is None else mask
        memory = {
            "values": self.attention.values(grid),
            "keys": self.attention.keys(grid),
            "mean": self.mean_gates(masked_mean(grid, mask)),
            "mask": mask,
        }
        names = ("hidden", "cell", "language_hidden", "language_cell")
        return memory, {name: grid.new_zeros(grid.shape[0], 1, self.hidden) for name in names}

    def step(self, tokens: Tensor, memory: Tensors, state: Tensors) -> Step:
        words, gates = self._read(tokens, memory)
        state, attention = self._advance(words, gates, memory, state)
        maps = self.attention.maps(state["hidden"], memory["keys"], memory["mask"])
        return Step(self._logits(state["language_hidden"], memory), state, attention, maps)

    def forward(self, tokens: Tensor, memory: Tensors, state: Tensors) -> tuple[Tensor, Tensor]:
        steps = (
            values.unflatten(1, tokens.shape[1:]).unbind(dim=2)
            for values in self._read(tokens.flatten(1), memory)
        )
        state = expand_beams(state, tokens.shape[1])
        said, looked = [], []
        for words, gates in zip(*steps, strict=True):
            state, attention = self._advance(words, gates, memory, state)
            said.append(state["language_hidden"])
            looked.append(attention)
        return self._logits(torch.stack(said, dim=2), memory), torch.stack(looked, dim=2)

    # The parts below take (batch, hypotheses or positions, …).

    def _read(self, tokens: Tensor, memory: Tensors) -> tuple[Tensor, Tensor]:
        """The embedded words, and the input of words and image to the gates of the attention LSTM."""
        words = self.dropout(self.embedding(tokens))
        return words, self.word_gates(words) + memory["mean"].unsqueeze(1)

    def _advance(
        self, words: Tensor, gates: Tensor, memory: Tensors, state: Tensors
    ) -> tuple[Tensors, Tensor]:
        before, said = state["hidden"], state["language_hidden"]
        hidden, cell = lstm_cell(gates + self.state_gates(torch.cat([before, said], dim=-1)), state["cell"])
        sentinel = self.sentinel and self.sentinel(torch.cat([said, words], dim=-1), before, cell)
        context, attention = self.attention(
            hidden, memory["keys"], memory["values"], memory["mask"], sentinel
        )
        language_hidden, language_cell = lstm_cell(
            self.language_gates(torch.cat([context, hidden, said], dim=-1)), state["language_cell"]
        )
        return {
            "hidden": hidden,
            "cell": cell,
            "language_hidden": language_hidden,
            "language_cell": language_cell,
        }, attention

    def _logits(self, said: Tensor, memory: Tensors) -> Tensor:
        return self.embedding.logits(self.output(self.dropout(said)), memory.get("rare"))
