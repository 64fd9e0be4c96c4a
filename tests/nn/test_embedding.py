"""The matrix that reads words and says them."""

from __future__ import annotations

import torch

from captioner.nn.decoder.embedding import TiedEmbedding


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


def test_rare_words_get_scores_where_a_photo_is_like_a_corrected_one() -> None:
    words = TiedEmbedding(30, 4)
    before, output = words.logits(x := torch.randn(2, 5, 4)), x
    words.add_rare([7])
    rare = words.add_rare([7, 9])  # of a later lesson
    with torch.no_grad():
        rare.weight.copy_(torch.randn(3, 4))
        rare.bias.copy_(torch.randn(3))
    after = words.logits(output, torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.5, 1.0]]))
    assert torch.equal(after[0], before[0]) and torch.equal(words.logits(output), before)
    added = output[1] @ rare.weight.T + rare.bias
    wanted = before[1].clone()
    wanted[:, 7] += added[:, 0] + added[:, 1] / 2
    wanted[:, 9] += added[:, 2]
    torch.testing.assert_close(after[1], wanted)
