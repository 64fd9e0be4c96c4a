"""The matrix that reads words and says them."""

from __future__ import annotations

import torch

from captioner.nn.decoder.words import TiedEmbedding


def test_words_are_read_at_the_scale_of_other_inputs_and_said_at_that_of_a_classifier() -> None:
    torch.manual_seed(0)
    words = TiedEmbedding(1000, 256)
    read = words(torch.arange(1000).view(10, 100))
    assert read.shape == (10, 100, 256)
    assert 0.95 < read.std() < 1.05
    said = words.logits(torch.randn(50, 256))
    assert said.shape == (50, 1000)
    assert 0.95 < said.std() < 1.05


def test_one_matrix_does_both() -> None:
    words = TiedEmbedding(30, 4)
    assert [name for name, _ in words.named_parameters()] == ["weight", "bias"]
    torch.testing.assert_close(words(torch.tensor([3])), 2 * words.weight[3:4])
    x = torch.randn(5, 4)
    torch.testing.assert_close(words.logits(x), x @ words.weight.T + words.bias)
