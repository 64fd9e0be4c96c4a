"""Captions sampled from a model, and its predictions along them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder import Decoder, Tensors, expand_beams


@torch.no_grad()
def sample(
    decoder: Decoder, memory: Tensors, state: Tensors, samples: int, max_words: int, temperature: float = 1.0
) -> Tensor:
    """Captions sampled word by word from the model: int64 (batch, samples, length + 1), start token first,
    padded behind the end token. One that reaches `max_words` has no end token."""
    remembered = next(iter(memory.values()))
    batch, device = remembered.shape[0], remembered.device
    state = expand_beams(state, samples)
    tokens = torch.full((batch, samples), Vocabulary.start_id, device=device)
    ended = torch.zeros_like(tokens, dtype=torch.bool)
    sequence = [tokens]
    for words in range(max_words + 1):
        step = decoder.step(tokens, memory, state)
        logits = step.logits.float() / temperature
        logits[..., [Vocabulary.pad_id, Vocabulary.start_id, Vocabulary.unknown_id]] = -torch.inf
        drawn = torch.multinomial(torch.softmax(logits, dim=-1).flatten(0, 1), 1).view(batch, samples)
        tokens = drawn.masked_fill(ended, Vocabulary.pad_id)
        if words == max_words:  # only the end token may follow
            tokens = tokens.masked_fill(tokens != Vocabulary.end_id, Vocabulary.pad_id)
        sequence.append(tokens)
        ended |= tokens == Vocabulary.end_id
        state = step.state
        # A GPU computes all words: it would wait for each answer, and one answer at the end is enough.
        if device.type == "cpu" and bool(ended.all()):
            break
    captions = torch.stack(sequence, dim=-1)
    return captions if device.type == "cpu" else without_padding(captions)


def without_padding(captions: Tensor) -> Tensor:
    """Captions (batch, samples, length) without the positions at the end that are padding in all of them."""
    used = (captions != Vocabulary.pad_id).flatten(0, 1).any(dim=0)
    return captions[..., : int(used.sum())]


def logits_of(decoder: Decoder, captions: Tensor, memory: Tensors, state: Tensors) -> tuple[Tensor, Tensor]:
    """The logits of each next word of `captions`, as from `sample`, with the bonuses of the checklist that
    samples are drawn with: (batch, samples, length, vocabulary); and the maps (batch, samples, length,
    cells)."""
    tokens = captions[:, :, :-1]
    logits, attention = decoder(tokens, memory, state)
    return decoder.as_searched(logits, tokens, memory, state), attention


@contextmanager
def without_dropout(decoder: Decoder) -> Iterator[None]:
    training = decoder.training
    decoder.eval()
    for module in decoder.modules():
        if isinstance(module, nn.RNNBase):  # they have no dropout, and cuDNN gives no gradient otherwise
            module.train(training)
    try:
        yield
    finally:
        decoder.train(training)
