"""Up-Down, against PyTorch's own LSTM cells."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from captioner.nn.attention import AdditiveAttention
from captioner.nn.decoder import DecoderSizes, TwoLSTMDecoder, UpDownDecoder, expand_beams

BATCH, CAPTIONS, LENGTH, CELLS, FEATURES, HIDDEN, EMBEDDING, WORDS = 2, 3, 4, 6, 8, 10, 7, 12


def make(kind: type = UpDownDecoder) -> UpDownDecoder:
    attention = AdditiveAttention(HIDDEN, FEATURES, 5)
    return kind(attention, DecoderSizes(WORDS, FEATURES, HIDDEN, EMBEDDING, 0.5)).double().eval()


def grid() -> Tensor:
    return torch.randn(BATCH, CELLS, FEATURES, dtype=torch.float64)


def captions() -> Tensor:
    return torch.randint(1, WORDS, (BATCH, CAPTIONS, LENGTH))


def cells(decoder: UpDownDecoder) -> tuple[nn.LSTMCell, nn.LSTMCell]:
    """The same weights in PyTorch's cells, on [s; mean; word] and on [context; h]."""
    looks = nn.LSTMCell(HIDDEN + FEATURES + EMBEDDING, HIDDEN).double()
    speaks = nn.LSTMCell(FEATURES + HIDDEN, HIDDEN).double()
    of_hidden, of_said = decoder.state_gates.weight.split(HIDDEN, dim=1)
    looks.weight_ih.copy_(torch.cat([of_said, decoder.mean_gates.weight, decoder.word_gates.weight], dim=1))
    looks.weight_hh.copy_(of_hidden)
    looks.bias_ih.copy_(decoder.word_gates.bias)
    looks.bias_hh.zero_()
    of_seen, of_said = decoder.language_gates.weight.split([FEATURES + HIDDEN, HIDDEN], dim=1)
    speaks.weight_ih.copy_(of_seen)
    speaks.weight_hh.copy_(of_said)
    speaks.bias_ih.copy_(decoder.language_gates.bias)
    speaks.bias_hh.zero_()
    return looks, speaks


@torch.no_grad()
def test_it_is_what_its_equations_say() -> None:
    decoder, shown, known = make(), grid(), captions()
    logits, attention = decoder(known, *decoder.prepare(shown))
    looks, speaks = cells(decoder)
    for image in range(BATCH):
        for caption in range(CAPTIONS):
            h = m = s = n = torch.zeros(1, HIDDEN, dtype=torch.float64)
            for t in range(LENGTH):
                word = decoder.embedding(known[image, caption, t])[None]
                h, m = looks(torch.cat([s, shown[image].mean(0)[None], word], dim=1), (h, m))
                look = decoder.attention
                weights = torch.softmax(look.score(torch.tanh(look.query(h) + look.key(shown[image]))), 0)
                s, n = speaks(torch.cat([(weights * shown[image]).sum(0)[None], h], dim=1), (s, n))
                expected = decoder.embedding.logits(decoder.output(s)[0])
                torch.testing.assert_close(attention[image, caption, t], weights[:, 0])
                torch.testing.assert_close(logits[image, caption, t], expected)


@pytest.mark.parametrize(("kind", "feeds_back"), [(UpDownDecoder, True), (TwoLSTMDecoder, False)])
def test_what_was_seen_tells_where_to_look_next(kind: type, feeds_back: bool) -> None:
    """A cell that is hidden during the first step only changes the second map where there is feedback."""
    decoder, known = make(kind), captions()
    memory, state = decoder.prepare(grid())
    hidden = memory["mask"].clone()
    hidden[:, :3] = False
    maps = []
    for mask in (memory["mask"], hidden):
        first = decoder.step(known[:, :, 0], memory | {"mask": mask}, expand_beams(state, CAPTIONS))
        maps.append(decoder.step(known[:, :, 1], memory, first.state).attention)
    assert ((maps[0] - maps[1]).abs().max() > 1e-6) == feeds_back
