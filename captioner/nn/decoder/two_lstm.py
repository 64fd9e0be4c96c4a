"""Two LSTMs: one for attention, one for language."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.nn.attention import Attention
from captioner.nn.decoder.base import DecoderSizes, Tensors
from captioner.nn.decoder.lstm import Look, LSTMDecoder, lstm_sequence, lstm_step


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

    def _speak(self, hidden: Tensor, look: Look, state: Tensors) -> tuple[Tensor, Tensors]:
        inputs = self._language_input(hidden, look)
        said, cell = lstm_step(self.language_lstm, inputs, state["language_hidden"], state["language_cell"])
        return said, {"language_hidden": said, "language_cell": cell}

    def _speak_all(self, hidden: Tensor, look: Look, shape: torch.Size, state: Tensors) -> Tensor:
        inputs = self._language_input(hidden, look)
        return lstm_sequence(
            self.language_lstm, inputs, shape, state["language_hidden"], state["language_cell"]
        )

    def _language_input(self, hidden: Tensor, look: Look) -> Tensor:
        """The input of the language LSTM."""
        return self.dropout(torch.cat([look.seen, hidden], dim=-1))
