"""Words that the image calls for are likelier until they are said."""

from __future__ import annotations

import pytest
import torch

from captioner.errors import DataError
from captioner.model.search import search
from captioner.model.vocabulary import SPECIAL
from captioner.nn.attention import AdditiveAttention
from captioner.nn.decoder import DECODERS, DecoderSizes, LSTMDecoder, expand_beams
from captioner.nn.decoder.bonus import Bonuses, BonusOptions, checklist
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions

WORDS = 40


@pytest.fixture(params=["lstm", "two_lstm"])
def decoder(request: pytest.FixtureRequest) -> LSTMDecoder:
    made = DECODERS[request.param](AdditiveAttention(10, 8, 5), DecoderSizes(WORDS, 8, 10, 7, 0.5)).eval()
    assert isinstance(made, LSTMDecoder)
    made.bonus = Bonuses(BonusOptions(checklist_weight=0.5), WORDS)
    return made


def costly(costs: torch.Tensor | None, related: torch.Tensor | None = None) -> Bonuses:
    cost = 0.0 if related is None else 3.0
    bonus = Bonuses(BonusOptions(checklist_weight=0.5, related_cost=cost), WORDS)
    bonus.repetition = costs
    if related is not None:
        bonus.related[:, : related.shape[1]] = related
    return bonus


def grid() -> torch.Tensor:
    return torch.randn(2, 6, 8)


def test_gains_are_of_words_above_the_margin() -> None:
    detected = torch.full((1, WORDS), -10.0)
    detected[0, [2, 7, 9]] = torch.tensor([0.0, 0.0, -4.0])
    gains = checklist.write(detected, 0.5)[0, 0]
    log_probs = torch.log_softmax(detected, -1)[0]
    assert gains[: len(SPECIAL)].tolist() == [0.0] * len(SPECIAL)
    assert gains.nonzero().flatten().tolist() == [7, 9]
    torch.testing.assert_close(gains[[7, 9]], 0.5 * (log_probs[[7, 9]] + checklist.MARGIN))
    flatter = checklist.write(detected, 0.5, power=0.7)[0, 0]
    torch.testing.assert_close(flatter[[7, 9]], 0.5 * (log_probs[[7, 9]] + checklist.MARGIN) ** 0.7)
    assert flatter.nonzero().flatten().tolist() == [7, 9]


def test_a_step_adds_what_was_not_said(decoder: LSTMDecoder) -> None:
    with torch.inference_mode():
        memory, state = decoder.prepare(grid())
        assert state["checklist"].shape == (2, 1, WORDS)
        decoder.bonus = None
        _, plain = decoder.prepare(grid())
        assert "checklist" not in plain
        decoder.bonus = Bonuses(BonusOptions(checklist_weight=0.5), WORDS)
        said = [int(gains.argmax()) for gains in state["checklist"]]
        tokens = torch.tensor([[1, word] for word in said])
        state = expand_beams(state, 2)
        step = decoder.step(tokens, memory, state)
        without = decoder.step(tokens, memory, {n: v for n, v in state.items() if n != "checklist"})
    added = step.logits - without.logits
    torch.testing.assert_close(added, step.state["checklist"])
    torch.testing.assert_close(added[:, 0], state["checklist"][:, 0])
    for image, word in enumerate(said):
        expected = state["checklist"][image, 1].clone()
        expected[word] = 0
        torch.testing.assert_close(added[image, 1], expected)


def test_words_that_were_said_cost_something(decoder: LSTMDecoder) -> None:
    with torch.inference_mode():
        memory, state = decoder.prepare(grid())
        tokens = torch.tensor([[5], [6]])
        before = decoder.step(tokens, memory, state).logits
        decoder.bonus = costly(torch.arange(WORDS) / 10)
        step = decoder.step(tokens, memory, state)
        again = decoder.step(torch.tensor([[7], [7]]), memory, step.state)
    gain = state["checklist"][0, 0, 5]
    torch.testing.assert_close(step.logits[0, 0, 5], before[0, 0, 5] - 0.5)
    torch.testing.assert_close(step.logits[1, 0, 5], before[1, 0, 5])
    assert again.state["checklist"][0, 0, [5, 7]].tolist() == pytest.approx([-0.5, -0.7])
    assert gain >= 0


def test_other_names_of_what_was_said_cost_something(decoder: LSTMDecoder) -> None:
    """Those that a word has now; what was said itself has its own cost."""
    related = torch.zeros(WORDS, 2, dtype=torch.int64)
    related[5] = torch.tensor([7, 8])
    related[8] = torch.tensor([5, 0])
    with torch.inference_mode():
        memory, state = decoder.prepare(grid())
        decoder.bonus = costly(torch.arange(WORDS) / 10, related)
        step = decoder.step(torch.tensor([[5], [6]]), memory, state)
        again = decoder.step(torch.tensor([[8], [8]]), memory, step.state)
    gains = step.state["checklist"][:, 0]
    assert gains[0, [5, 7, 8]].tolist() == pytest.approx([-0.5, -3, -3])
    expected = state["checklist"][1, 0].clone()
    expected[[0, 6]] = torch.tensor([-3, -0.6])  # padding never follows
    torch.testing.assert_close(gains[1], expected)
    assert again.state["checklist"][0, 0, [5, 7, 8]].tolist() == pytest.approx([-3, -3, -0.8])
    assert again.state["checklist"][1, 0, [5, 6, 8]].tolist() == pytest.approx([-3, -0.6, -0.8])


@pytest.mark.parametrize("related", [None, torch.arange(WORDS).add(4).remainder(WORDS).unsqueeze(1)])
@pytest.mark.parametrize("costs", [None, torch.arange(WORDS) / 10])
def test_known_captions_have_the_gains_of_the_search(
    costs: torch.Tensor | None, related: torch.Tensor | None, decoder: LSTMDecoder
) -> None:
    """What self-critical training is taught is what was searched for, or sampled, word by word."""
    decoder.bonus = costly(costs, related)
    with torch.inference_mode():
        memory, state = decoder.prepare(grid())
        options = CaptionOptions(beam_size=3, alternatives=2, max_words=6, length_normalization=0.0)
        for image, found in enumerate(search(TorchStepper(decoder, memory, state), 2, options)):
            one = {name: value[image : image + 1] for name, value in memory.items()}
            first = {name: value[image : image + 1] for name, value in state.items()}
            for hypothesis in found:
                said = torch.tensor([[[1, *hypothesis.tokens]]])
                logits, _ = decoder(said, one, first)
                gained = decoder.as_searched(logits, said, one, first)
                targets = torch.tensor([*hypothesis.tokens, 2])
                expected = torch.log_softmax(gained[0, 0], -1).gather(1, targets[:, None])[:, 0]
                torch.testing.assert_close(torch.tensor(hypothesis.log_probs), expected, rtol=1e-4, atol=1e-4)


def test_rewards_do_not_teach_what_to_detect(decoder: LSTMDecoder) -> None:
    _, state = decoder.prepare(grid())
    assert not state["checklist"].requires_grad


@pytest.mark.parametrize("name", ["repetition_cost", "related_cost"])
def test_costs_need_a_checklist(name: str) -> None:
    with pytest.raises(DataError, match=f"{name} needs a checklist_weight above 0"):
        BonusOptions(**{name: 2.0})
    with pytest.raises(DataError, match=f"{name} must be at least 0 and finite"):
        BonusOptions(**{name: float("nan"), "checklist_weight": 1.0})


@pytest.mark.parametrize("power", [0.0, 1.1, float("nan")])
def test_a_power_out_of_range_is_rejected(power: float) -> None:
    with pytest.raises(DataError, match="checklist_power must be above 0 and up to 1"):
        BonusOptions(checklist_power=power)
