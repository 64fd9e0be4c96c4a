"""Every attention in every decoder: word by word and all at once, masked, and learning."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from captioner.errors import DataError
from captioner.nn.attention import ATTENTIONS, NoAttention, drawn_cells
from captioner.nn.decoder import DECODERS, Decoder, DecoderSizes

BATCH, CAPTIONS, LENGTH, CELLS, FEATURES, HIDDEN, EMBEDDING, WORDS = 2, 3, 5, 6, 8, 12, 7, 12


@pytest.fixture(
    params=[(decoder, attention) for decoder in DECODERS for attention in ATTENTIONS], ids="-".join
)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    name, attention = request.param
    try:
        looks = ATTENTIONS[attention](HIDDEN, FEATURES, 6, 2)
        made = DECODERS[name](looks, DecoderSizes(WORDS, FEATURES, HIDDEN, EMBEDDING, 0.1, 2, 2))
    except DataError as error:
        pytest.skip(str(error))
    torch.nn.init.normal_(made.embedding.bias)
    return made.eval()


def captions() -> Tensor:
    return torch.randint(1, WORDS, (BATCH, CAPTIONS, LENGTH))


def some_hidden() -> tuple[Tensor, Tensor]:
    mask = torch.ones(BATCH, CELLS, dtype=torch.bool)
    mask[0, 2:4] = False
    return torch.randn(BATCH, CELLS, FEATURES), mask


def test_word_by_word_is_all_at_once(decoder: Decoder) -> None:
    memory, state = decoder.prepare(*some_hidden())
    known = captions()
    logits, attention = decoder(known, memory, state)
    # The base class takes the steps one after the other.
    stepped, stepped_attention = Decoder.forward(decoder, known, memory, state)
    torch.testing.assert_close(logits, stepped, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(attention, stepped_attention, rtol=1e-4, atol=1e-6)


def test_the_attention_is_the_mean_of_what_the_heads_see(decoder: Decoder) -> None:
    step = decoder.step(captions()[:, :1, 0], *decoder.prepare(*some_hidden()))
    assert (step.attention[0, :, 2:4] == 0).all() and (step.attention >= 0).all()
    total = step.attention.sum(-1)
    assert (total < 1).all() if decoder.has_sentinel else total.allclose(torch.ones(()))
    assert (step.heads is not None) == (decoder.heads > 1)
    if step.heads is not None:
        assert step.heads.shape == (BATCH, 1, decoder.heads, CELLS)
        torch.testing.assert_close(step.heads.mean(2), step.attention)


def test_a_masked_cell_changes_nothing_to_the_bit(decoder: Decoder) -> None:
    cells, mask = some_hidden()
    other = cells.clone()
    other[~mask] = 50.0
    known = captions()
    found, again = (decoder(known, *decoder.prepare(grid, mask)) for grid in (cells, other))
    assert all(torch.equal(one, two) for one, two in zip(found, again, strict=True))


def test_all_parameters_learn(decoder: Decoder) -> None:
    """Hard attention too, from the cells it drew or the mean that it saw."""
    torch.manual_seed(1)
    memory, state = decoder.train().prepare(*some_hidden())
    with drawn_cells(decoder) as drawn:
        logits, _ = decoder(captions(), memory, state)
    (logits.square().mean() + sum(log_probs.sum() for log_probs in drawn)).backward()
    still = [n for n, p in decoder.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    if any(isinstance(module, NoAttention) for module in decoder.modules()):
        still = [name for name in still if "attention_norm" not in name]  # of queries, which nobody hears
    assert still == []
