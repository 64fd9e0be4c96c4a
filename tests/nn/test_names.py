"""Help with names that hardly any caption has."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.decoder.bonus.names import FOLLOWERS, SURE, Names
from captioner.nn.model import CaptionModel, ModelOptions

WORDS = 12
GUINEA, PIG, TOUCAN = 8, 9, 10
SMALL = {
    "encoder": "efficientnet_lite0",
    "image_size": 64,
    "attention": "scaled_dot_product",
    "decoder": "two_lstm",
    "features": 16,
    "hidden": 16,
    "embedding": 16,
}
SOME = {"checklist_weight": 0.2, "classes": 3, "named_words": 3}
CONTINUED = BonusOptions(**SOME, name_continuation=2.0, following_words=2)
OPTIONS = ModelOptions(**SMALL, bonus=dataclasses.replace(CONTINUED, name_proposal=8.0))


def names() -> Names:
    """The names of three classes: "guinea pig", "toucan", and none."""
    following = torch.full((WORDS, FOLLOWERS), 1)
    following[GUINEA, 0] = 0
    following_token = torch.full_like(following, Vocabulary.pad_id)
    following_token[GUINEA, 0] = PIG
    return Names(
        membership=torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
        following=following,
        following_token=following_token,
        following_gain=torch.ones(WORDS),
        proposed=torch.tensor([GUINEA, TOUCAN, Vocabulary.pad_id]),
        proposed_gain=torch.tensor([1.0, 0.5, 0.0]),
    )


def helped(options: ModelOptions = OPTIONS) -> CaptionModel:
    torch.manual_seed(0)
    model = CaptionModel(options, WORDS).eval()
    model.help_with_names(names())
    return model


def scores(*classes: int) -> torch.Tensor:
    """Class scores (1, 4 cells, 3 classes) of cells that certainly show these classes."""
    return 20.0 * torch.nn.functional.one_hot(torch.tensor(classes), 3).float().unsqueeze(0)


def test_a_name_goes_on_where_its_map_shows_the_class() -> None:
    help_ = helped().names
    parts = help_(scores(0, 1, 1, 2))["parts"]
    seen = torch.eye(4)[[0, 1]].unsqueeze(0)  # the map of one word on each of the first two cells
    tokens = torch.tensor([[GUINEA, GUINEA]])
    gains = help_.go_on(torch.zeros(1, 2, WORDS), tokens, seen, parts)
    assert gains[0, 0, PIG].item() == pytest.approx(2 * 6.0, abs=1e-3)
    gains[0, 0, PIG] = 0.0
    assert gains.abs().max() == 0.0  # no other word, and nothing at the cell of the toucan
    tokens = torch.tensor([[TOUCAN, PIG]])
    assert help_.go_on(torch.zeros(1, 2, WORDS), tokens, seen, parts).abs().max() == 0.0


def test_the_name_of_a_certain_class_is_proposed() -> None:
    help_ = helped().names
    proposals = help_(scores(1, 1, 1, 1))["proposals"]
    assert proposals.shape == (1, 1, WORDS)
    assert proposals[0, 0, TOUCAN].item() == pytest.approx(8 * 0.5, abs=1e-3)
    assert proposals.sum().item() == pytest.approx(8 * 0.5, abs=1e-3)
    unsure = torch.log(torch.tensor([SURE - 0.01, SURE - 0.02, 1.03 - 2 * SURE])).expand(1, 4, 3)
    assert help_(unsure)["proposals"].abs().max() == 0.0


def test_proposals_begin_after_the_first_word_and_end_with_the_name() -> None:
    model = helped()
    pixels = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    memory, state = model.encode(pixels)
    plain = {name: value for name, value in memory.items() if name != "proposals"}
    memory["proposals"] = torch.zeros(2, 1, WORDS).index_fill(2, torch.tensor([GUINEA]), 8.0)
    before, without = state, state
    for token, gain in ((Vocabulary.start_id, 0.0), (5, 8.0), (GUINEA, 0.0)):
        tokens = torch.full((2, 1), token)
        step, other = model.decoder.step(tokens, memory, before), model.decoder.step(tokens, plain, without)
        difference = step.logits - other.logits
        torch.testing.assert_close(difference[..., GUINEA], torch.full((2, 1), gain))
        assert difference.sum().item() == pytest.approx(2 * gain, abs=1e-4)
        before, without = step.state, other.state


def test_steps_and_known_captions_get_the_same_help() -> None:
    model = helped()
    pixels = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    memory, state = model.encode(pixels)
    memory["parts"] = torch.rand_like(memory["parts"])
    memory["proposals"] = torch.zeros(2, 1, WORDS).index_fill(2, torch.tensor([GUINEA, PIG, TOUCAN]), 3.0)
    tokens = torch.tensor([[[Vocabulary.start_id, 5, GUINEA, PIG]]]).expand(2, 1, -1)
    logits, _ = model.decoder(tokens, memory, state)
    logits = model.decoder.as_searched(logits, tokens, memory, state)
    for position in range(tokens.shape[2]):
        step = model.decoder.step(tokens[:, :, position], memory, state)
        torch.testing.assert_close(step.logits, logits[:, :, position])
        state = step.state


def test_without_proposals_the_memory_has_none() -> None:
    model = helped(ModelOptions(**SMALL, bonus=CONTINUED))
    memory, _ = model.encode(torch.zeros(1, 64, 64, 3, dtype=torch.uint8))
    assert "parts" in memory and "proposals" not in memory


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name_continuation": -1.0}, "name_continuation must be at least 0"),
        ({"name_proposal": math.nan}, "name_proposal must be at least 0"),
        ({"name_proposal": 1.0, "checklist_weight": 0.0}, "needs a checklist_weight"),
        ({"name_continuation": 1.0, "classes": 0, "named_words": 0}, "need classes"),
    ],
)
def test_help_that_cannot_be_given_is_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        BonusOptions(**(SOME | options))
