"""The gradient of hard attention, against the one that could be had if all cells were tried."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.nn.attention import HardAttention, drawn_cells, hard
from captioner.training.objectives.hard_attention import CellReward

CELLS, WORDS, COPIES = 5, 7, 40_000


def test_on_average_the_gradient_is_that_of_the_expected_log_likelihood() -> None:
    """Many draws for one query, paid with fixed log-probabilities, against sum_i a[i] log p(y | cell i)."""
    scores = torch.randn(CELLS, requires_grad=True)
    paid = torch.log_softmax(torch.randn(CELLS, WORDS), dim=-1)[:, 3]
    policy = torch.softmax(scores, dim=-1)
    [expected] = torch.autograd.grad(-(policy * paid).sum(), scores, retain_graph=True)
    cells = torch.multinomial(policy.detach(), COPIES, replacement=True).view(1, 1, COPIES)
    logits = torch.full((1, 1, COPIES, WORDS), -1e9)
    logits[..., 3] = paid[cells]
    logits[..., 4] = torch.log1p(-paid[cells].exp())
    targets = torch.full((1, 1, COPIES), 3)
    reward = CellReward()
    loss = reward.loss([policy[cells].log().flatten(1)], logits, targets)
    [found] = torch.autograd.grad(loss, scores)
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0)


def test_the_baseline_follows_the_words_and_padding_counts_for_nothing() -> None:
    reward = CellReward()
    logits = torch.randn(2, 3, 4, WORDS)
    targets = torch.randint(3, WORDS, (2, 3, 4))
    targets[:, :, 3] = Vocabulary.pad_id
    drawn = torch.randn(2, 12)
    said = torch.log_softmax(logits, -1).gather(-1, targets[..., None])[..., 0][:, :, :3]
    first = reward.loss([drawn], logits, targets)
    assert reward.baseline == pytest.approx(float(said.mean()), abs=1e-5)
    expected = -((said - said.mean()) * drawn.view(2, 3, 4)[:, :, :3]).mean()
    torch.testing.assert_close(first, expected)
    before = reward.baseline
    # A decoder that calls its attention once a word.
    second = reward.loss(list(drawn.view(2, 3, 4).unbind(-1)), logits + torch.eye(WORDS)[3] * 2, targets)
    later = torch.log_softmax(logits + torch.eye(WORDS)[3] * 2, -1).gather(-1, targets[..., None])[..., 0]
    assert reward.baseline == pytest.approx(0.9 * before + 0.1 * float(later[:, :, :3].mean()), abs=1e-5)
    expected = -((later[:, :, :3] - before) * drawn.view(2, 3, 4)[:, :, :3]).mean()
    torch.testing.assert_close(second, expected)


def test_layers_that_draw_for_the_same_word_are_paid_alike() -> None:
    logits, targets = torch.randn(2, 3, 4, WORDS), torch.randint(3, WORDS, (2, 3, 4))
    one, two = torch.randn(2, 12), torch.randn(2, 12)
    reward, again = CellReward(), CellReward()
    expected = reward.loss([one + two], logits, targets)
    torch.testing.assert_close(again.loss([one, two], logits, targets), expected)
    by_word = [
        part for word in zip(*(d.view(2, 3, 4).unbind(-1) for d in (one, two)), strict=True) for part in word
    ]
    torch.testing.assert_close(CellReward().loss(by_word, logits, targets), expected)


def test_a_policy_learns_where_the_word_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell of five says which word comes; which one, the query says. All gradient is REINFORCE's."""
    monkeypatch.setattr(hard, "SAMPLED_SHARE", 1.0)
    attention = HardAttention(CELLS, WORDS + CELLS, 16).train()
    say = torch.nn.Linear(WORDS + CELLS, WORDS + 3)
    optimizer = torch.optim.Adam([*attention.parameters(), *say.parameters()], lr=2e-2)
    reward = CellReward()

    def task() -> tuple[Tensor, Tensor, Tensor]:
        words = torch.randint(0, WORDS, (32, CELLS))
        places = torch.eye(CELLS).expand(32, -1, -1)
        grid = torch.cat([torch.nn.functional.one_hot(words, WORDS), places], dim=-1)
        where = torch.randint(0, CELLS, (32, 6))
        return grid, where, words.gather(1, where) + 3

    for _ in range(250):
        grid, where, targets = task()
        with drawn_cells(attention) as drawn:
            context, _ = attention(torch.eye(CELLS)[where], attention.keys(grid), attention.values(grid))
        logits = say(context)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss = loss + reward.loss(drawn, logits.unsqueeze(1), targets.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    attention.eval()
    grid, where, targets = task()
    context, weights = attention(torch.eye(CELLS)[where], attention.keys(grid), attention.values(grid))
    assert (weights.argmax(-1) == where).float().mean() > 0.95
    assert (say(context).argmax(-1) == targets).float().mean() > 0.95
