"""Words that are detected in the attended cells become likelier than those of the photo as a whole."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from captioner.nn.attention import ScaledDotProductAttention
from captioner.nn.decoder import DecoderSizes, LSTMDecoder, TwoLSTMDecoder
from captioner.nn.decoder.bonus import Bonuses, BonusOptions

KINDS = pytest.mark.parametrize("kind", [LSTMDecoder, TwoLSTMDecoder])


def _decoder(kind: type[LSTMDecoder]) -> LSTMDecoder:
    torch.manual_seed(1)
    return kind(ScaledDotProductAttention(8, 6, 4), DecoderSizes(9, 6, 8, 5)).eval()


@KINDS
def test_what_the_attended_cells_show_beyond_the_photo_is_added(kind: type[LSTMDecoder]) -> None:
    decoder, grid, mask = _decoder(kind), torch.randn(2, 9, 6), torch.rand(2, 9) > 0.3
    tokens = torch.tensor([[1], [1]])
    before = decoder.step(tokens, *decoder.prepare(grid, mask))
    decoder.bonus = Bonuses(BonusOptions(attended_detection=0.5), 9)
    memory, state = decoder.prepare(grid, mask)
    after = decoder.step(tokens, memory, state)
    shown = mask.float() / mask.sum(dim=1, keepdim=True)
    detail = (before.attention - shown.unsqueeze(1)) @ memory["values"]
    detail = detail * torch.sigmoid(decoder.gate(before.state["hidden"]))
    added = 0.5 * F.linear(detail, decoder.mean.weight) @ decoder.embedding.weight.T
    torch.testing.assert_close(after.logits, before.logits + added)
    torch.testing.assert_close(after.attention, before.attention)


@KINDS
def test_known_captions_and_single_steps_agree(kind: type[LSTMDecoder]) -> None:
    decoder = _decoder(kind)
    decoder.bonus = Bonuses(BonusOptions(attended_detection=0.5), 9)
    memory, state = decoder.prepare(torch.randn(2, 9, 6))
    tokens = torch.tensor([[[1, 4, 5]], [[1, 6, 7]]])
    logits, _ = decoder(tokens, memory, state)
    for place in range(3):
        step = decoder.step(tokens[:, :, place], memory, state)
        torch.testing.assert_close(step.logits, logits[:, :, place])
        state = step.state
