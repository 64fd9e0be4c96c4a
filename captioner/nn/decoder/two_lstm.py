"""Two LSTMs: one for attention, one for language."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.nn.attention import Attention
from captioner.nn.decoder.base import DecoderSizes, Step, Tensors
from captioner.nn.decoder.lstm import LSTMDecoder, lstm_sequence, lstm_step


class TwoLSTMDecoder(LSTMDecoder):
    """The attention LSTM and the language LSTM of Up-Down (Anderson et al. 2018, arXiv:1707.07998),
    without the feedback from the second to the first.

        h[t] = LSTM_1(x[t], h[t-1])                 as in `LSTMDecoder`
        z[t], a[t] = gated attention(h[t], g)
        s[t] = LSTM_2([z[t]; h[t]], s[t-1])         what has been seen enters the language state
        o[t] = tanh(O [s[t]; z[t]])

    Without that feedback, all steps of a known caption are one call of each LSTM, which makes training on a
    CPU several times faster. The language LSTM still remembers what was attended to.
    """

    def __init__(self, attention: Attention, sizes: DecoderSizes) -> None:
        super().__init__(attention, sizes)
        self.language_lstm = nn.LSTM(sizes.features + sizes.hidden, sizes.hidden, batch_first=True)

    def prepare(
        self, grid: Tensor, mask: Tensor | None = None, deepest: Tensor | None = None
    ) -> tuple[Tensors, Tensors]:
        memory, state = super().prepare(grid, mask, deepest)
        # Two tensors, not one twice: an exported graph names each of its outputs once.
        blank = {name: torch.zeros_like(state["hidden"]) for name in ("language_hidden", "language_cell")}
        return memory, state | blank

    def step(self, tokens: Tensor, memory: Tensors, state: Tensors) -> Step:
        inputs = self._inputs(tokens, memory)
        hidden, cell, sentinel = self._listen(inputs, state)
        look = self._look(hidden, memory, sentinel)
        language_hidden, language_cell = lstm_step(
            self.language_lstm,
            self.dropout(torch.cat([look.seen, hidden], dim=-1)),
            state["language_hidden"],
            state["language_cell"],
        )
        step = Step(
            self._logits(tokens, language_hidden, look, memory),
            {
                "hidden": hidden,
                "cell": cell,
                "language_hidden": language_hidden,
                "language_cell": language_cell,
            },
            look.attention,
            self.attention.maps(hidden, memory["keys"], memory["mask"]),
        )
        return self._searched(step, tokens, memory, state)

    def forward(self, tokens: Tensor, memory: Tensors, state: Tensors) -> tuple[Tensor, Tensor]:
        shape = tokens.shape
        inputs = self._inputs(tokens.flatten(1), memory)
        hidden, sentinel = self._listen_to_all(inputs, shape, state)
        look = self._look(hidden, memory, sentinel)
        language = lstm_sequence(
            self.language_lstm,
            self.dropout(torch.cat([look.seen, hidden], dim=-1)),
            shape,
            state["language_hidden"],
            state["language_cell"],
        )
        return (
            self._logits(tokens.flatten(1), language, look, memory).unflatten(1, shape[1:]),
            look.attention.unflatten(1, shape[1:]),
        )
