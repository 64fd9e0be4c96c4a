"""Captions drawn from the model."""

from __future__ import annotations

import itertools

import pytest
import torch

from captioner.nn.attention import AdditiveAttention
from captioner.nn.decoder import DecoderSizes, LSTMDecoder
from captioner.training.objectives.sampling import sample

WORDS, LIMIT, SAMPLES = 9, 6, 40


@pytest.fixture
def decoder() -> LSTMDecoder:
    return LSTMDecoder(AdditiveAttention(8, 6, 4), DecoderSizes(WORDS, 6, 8, 5)).eval()


def draw(decoder: LSTMDecoder, temperature: float = 1.0) -> torch.Tensor:
    return sample(decoder, *decoder.prepare(torch.randn(2, 3, 6)), SAMPLES, LIMIT, temperature)


def test_samples_are_captions(decoder: LSTMDecoder) -> None:
    drawn = draw(decoder)
    assert drawn.shape[:2] == (2, SAMPLES) and drawn.shape[2] <= LIMIT + 2
    for caption in drawn.flatten(0, 1).tolist():
        start, *rest = caption
        assert start == 1
        words = list(itertools.takewhile(lambda token: token not in (0, 2), rest))
        assert all(word > 3 for word in words) and len(words) <= LIMIT
        assert not any(rest[len(words) + 1 :])  # padding behind the end


def test_samples_are_drawn_by_their_probability(decoder: LSTMDecoder) -> None:
    grid = torch.randn(1, 3, 6)
    memory, state = decoder.prepare(grid)
    logits = decoder.step(torch.ones(1, 1, dtype=torch.int64), memory, state).logits[0, 0] / 0.5
    logits[[0, 1, 3]] = -torch.inf
    expected = torch.softmax(logits, -1)
    drawn = sample(decoder, memory, state, 4000, 1, 0.5)[0, :, 1]
    found = torch.bincount(drawn, minlength=WORDS) / 4000
    torch.testing.assert_close(found, expected.detach(), atol=0.03, rtol=0)


def test_the_colder_the_more_alike(decoder: LSTMDecoder) -> None:
    kinds = [len(torch.unique(draw(decoder, t).flatten(0, 1), dim=0)) for t in (1.0, 0.05)]
    assert kinds[1] < kinds[0]
