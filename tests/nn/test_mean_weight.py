"""The weight of the photo's mean in the input of the LSTM."""

from __future__ import annotations

import pytest
import torch

from captioner.nn.attention import ScaledDotProductAttention
from captioner.nn.decoder import DecoderSizes, LSTMDecoder, TwoLSTMDecoder
from captioner.nn.decoder.bonus import Bonuses, BonusOptions, checklist


@pytest.mark.parametrize("kind", [LSTMDecoder, TwoLSTMDecoder])
def test_the_mean_is_weighted_in_the_input_only(kind: type[LSTMDecoder]) -> None:
    decoder = kind(ScaledDotProductAttention(8, 6, 4), DecoderSizes(9, 6, 8, 5)).eval()
    decoder.bonus = Bonuses(BonusOptions(checklist_weight=1.0), 9)
    tokens, grid = torch.tensor([[[1, 4, 5]], [[1, 6, 7]]]), torch.randn(2, 9, 6)
    memory, state = decoder.prepare(grid)
    expected, _ = decoder(tokens, memory | {"mean": 0.3 * memory["mean"]}, state)
    decoder.mean_weight = 0.3
    weighted, same = decoder.prepare(grid)
    torch.testing.assert_close(same[checklist.STATE], state[checklist.STATE])
    torch.testing.assert_close(decoder(tokens, weighted, same)[0], expected)
    step = decoder.step(tokens[:, :, 0], weighted, same)
    gains = same[checklist.STATE].scatter(-1, tokens[:, :, :1], 0.0)
    torch.testing.assert_close(step.logits, expected[:, :, 0] + gains)
