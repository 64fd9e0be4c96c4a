"""An LSTM that attends from its current state."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from captioner.nn.attention import Attention, Sentinel
from captioner.nn.blocks import masked_mean
from captioner.nn.decoder.base import Decoder, DecoderSizes, Step, Tensors, every_cell
from captioner.nn.decoder.bonus import Spoken
from captioner.nn.decoder.embedding import TiedEmbedding


class Look(NamedTuple):
    """Where words look, and what they see there."""

    context: Tensor
    """(batch, queries, features)"""
    gate: Tensor
    """How much of it the words need, (batch, queries, features)."""
    seen: Tensor
    """The gated context."""
    attention: Tensor
    """(batch, queries, cells)"""


class LSTMDecoder(Decoder):
    """Spatial attention from the current hidden state, after Xu et al. 2015 (arXiv:1502.03044; the gate,
    the deep output, the initial state) and Lu et al. 2017 (arXiv:1612.01887; the current state).

        x[t] = sqrt(embedding) E y[t-1] + w M mean(g)   y: words, E (vocabulary, embedding), g: grid
        h[t], m[t] = LSTM(x[t], h[t-1], m[t-1])
        c[t], a[t] = attention(h[t], g)
        z[t] = sigmoid(B h[t]) * c[t]               the gate: how much this word needs the image
        o[t] = tanh(O [h[t]; z[t]])                 the deep output
        p(y[t]) = softmax(E o[t] + b)               embeddings tied, see `TiedEmbedding`

    M also detects words in the photo as a whole, E M mean(g) + b, which bonuses need.

    Neither a[t] nor y[t] enters h[t+1] other than as a word, so all steps of a known caption are one call.
    """

    detects = True

    def __init__(self, attention: Attention, sizes: DecoderSizes) -> None:
        super().__init__(attention, sizes)
        self.mean_weight = sizes.mean_weight
        self.attention = attention
        self.sentinel = Sentinel(sizes.embedding, sizes.hidden) if attention.has_sentinel else None
        self.embedding = TiedEmbedding(sizes.vocabulary, sizes.embedding)
        self.mean = nn.Linear(sizes.features, sizes.embedding)
        self.initial = nn.Linear(sizes.features, 2 * sizes.hidden)
        self.lstm = nn.LSTM(sizes.embedding, sizes.hidden, batch_first=True)
        self.gate = nn.Linear(sizes.hidden, sizes.features)
        self.output = nn.Linear(sizes.hidden + sizes.features, sizes.embedding)
        self.dropout = nn.Dropout(sizes.dropout)

    def prepare(
        self, grid: Tensor, mask: Tensor | None = None, deepest: Tensor | None = None
    ) -> tuple[Tensors, Tensors]:
        mask = every_cell(grid) if mask is None else mask
        mean = masked_mean(grid, mask)
        memory = {
            "values": self.attention.values(grid),
            "keys": self.attention.keys(grid),
            "mean": self.mean(mean),
            "mask": mask,
        }
        hidden, cell = torch.tanh(self.initial(mean)).unsqueeze(1).chunk(2, dim=-1)
        state = {"hidden": hidden, "cell": cell}
        if self.bonus is not None:
            memory |= self.bonus.remember(memory["values"], mask, deepest)
            state |= self.bonus.begin(self.detect(memory))
        return memory, state

    def step(self, tokens: Tensor, memory: Tensors, state: Tensors) -> Step:
        inputs = self._inputs(tokens, memory)
        hidden, cell, sentinel = self._listen(inputs, state)
        look = self._look(hidden, memory, sentinel)
        said, language = self._speak(hidden, look, state)
        maps = self.attention.maps(hidden, memory["keys"], memory["mask"])
        logits = self._logits(tokens, said, look, memory)
        step = Step(logits, {"hidden": hidden, "cell": cell, **language}, look.attention, maps)
        return self._searched(step, tokens, memory, state)

    def forward(self, tokens: Tensor, memory: Tensors, state: Tensors) -> tuple[Tensor, Tensor]:
        shape = tokens.shape
        inputs = self._inputs(tokens.flatten(1), memory)
        hidden, sentinel = self._listen_to_all(inputs, shape, state)
        look = self._look(hidden, memory, sentinel)
        logits = self._logits(tokens.flatten(1), self._speak_all(hidden, look, shape, state), look, memory)
        return logits.unflatten(1, shape[1:]), look.attention.unflatten(1, shape[1:])

    @property
    def detectors(self) -> list[nn.Module]:
        return [self.mean]

    def detect(self, memory: Tensors) -> Tensor:
        """Logits (batch, vocabulary) of the words that the image as a whole suggests, in no order: M mean(g)
        as an output. Training can teach it the words of the captions (the objective `bag_of_words`), so that
        the image's input to the LSTM roughly represents those words."""
        return self.embedding.logits(memory["mean"])

    # The parts below take (batch, queries, …), a query being a hypothesis or a position of a known caption.

    def _inputs(self, tokens: Tensor, memory: Tensors) -> Tensor:
        mean = memory["mean"] if self.mean_weight == 1 else self.mean_weight * memory["mean"]
        return self.dropout(self.embedding(tokens) + mean.unsqueeze(1))

    def _listen(self, inputs: Tensor, state: Tensors) -> tuple[Tensor, Tensor, Tensor | None]:
        """One step of the LSTM: its new state and cell, and the sentinel if the attention needs one."""
        hidden, cell = lstm_step(self.lstm, inputs, state["hidden"], state["cell"])
        if self.sentinel is None:
            return hidden, cell, None
        return hidden, cell, self.sentinel(inputs, state["hidden"], cell)

    def _listen_to_all(
        self, inputs: Tensor, shape: torch.Size, state: Tensors
    ) -> tuple[Tensor, Tensor | None]:
        """All steps of known captions: the states, and the sentinels if the attention needs them."""
        if self.sentinel is None:
            return lstm_sequence(self.lstm, inputs, shape, state["hidden"], state["cell"]), None
        before, hidden, cell = lstm_cells(self.lstm, inputs, shape, state["hidden"], state["cell"])
        return hidden, self.sentinel(inputs, before, cell)

    def _look(self, hidden: Tensor, memory: Tensors, sentinel: Tensor | None) -> Look:
        context, attention = self.attention(
            hidden, memory["keys"], memory["values"], memory["mask"], sentinel
        )
        gate = torch.sigmoid(self.gate(hidden))
        return Look(context, gate, gate * context, attention)

    def _speak(self, hidden: Tensor, look: Look, state: Tensors) -> tuple[Tensor, Tensors]:
        """What predicts the word beside what is seen, (…, hidden), and what the new state has of it: here the
        state that looked, which is in the new one already."""
        return hidden, {}

    def _speak_all(self, hidden: Tensor, look: Look, shape: torch.Size, state: Tensors) -> Tensor:
        """The same for all steps of known captions."""
        return hidden

    def _logits(self, tokens: Tensor, said: Tensor, look: Look, memory: Tensors) -> Tensor:
        query = self.dropout(torch.cat([said, look.seen], dim=-1))
        output = self.dropout(torch.tanh(self.output(query)))
        if self.bonus is None:
            return self.embedding.logits(output, memory.get("rare"))
        spoken = Spoken(output, query, look.context, look.gate, look.attention)
        attended = self.bonus.attended(spoken, self.mean.weight, memory)
        logits = self.embedding.logits(attended, memory.get("rare"))
        return self.bonus.named(logits, tokens, spoken, memory)

    def _searched(self, step: Step, tokens: Tensor, memory: Tensors, before: Tensors) -> Step:
        """A step of the search, with the bonuses of a checklist."""
        if self.bonus is None:
            return step
        logits, state = self.bonus.searched(step.logits, tokens, memory, before)
        return step._replace(logits=logits, state=step.state | state)


def lstm_step(lstm: nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One step of a one-layer `nn.LSTM` on (batch, beams, …); returns the new hidden and cell state.

    Written out so that it exports as two matrix products, whatever the number of leading dimensions.
    """
    (from_input, from_hidden, input_bias, hidden_bias) = lstm.all_weights[0]
    return lstm_cell(
        F.linear(inputs, from_input, input_bias) + F.linear(hidden, from_hidden, hidden_bias), cell
    )


def lstm_cell(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden and cell state, each (…, hidden), from the gates before their sigmoids (…, 4 hidden), in
    PyTorch's order, and the cell state."""
    enter, forget, new, leave = gates.chunk(4, dim=-1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def lstm_sequence(lstm: nn.LSTM, inputs: Tensor, shape: torch.Size, hidden: Tensor, cell: Tensor) -> Tensor:
    """All steps of known captions: inputs (batch, captions * length, …) with `shape` = (batch, captions,
    length), from a state (batch, 1, …). Returns the hidden states, (batch, captions * length, …)."""
    batch, captions, length = shape
    start = tuple(
        value.expand(-1, captions, -1).reshape(1, batch * captions, -1).contiguous()
        for value in (hidden, cell)
    )
    outputs, _ = lstm(inputs.reshape(batch * captions, length, -1), (start[0], start[1]))
    return outputs.reshape(batch, captions * length, -1)


def lstm_cells(
    lstm: nn.LSTM, inputs: Tensor, shape: torch.Size, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As `lstm_sequence`, with what `nn.LSTM` does not return: the states before each step, those after it,
    and the cells, each (batch, captions * length, …)."""
    hidden, cell = (value.expand(-1, shape[1], -1) for value in (hidden, cell))
    steps = []
    for position in inputs.unflatten(1, shape[1:]).unbind(dim=2):
        before = hidden
        hidden, cell = lstm_step(lstm, position, hidden, cell)
        steps.append((before, hidden, cell))
    before, hidden, cell = (torch.stack(values, dim=2).flatten(1, 2) for values in zip(*steps, strict=True))
    return before, hidden, cell
