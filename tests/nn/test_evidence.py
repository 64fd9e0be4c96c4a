"""Evidence of named things, through the attention of each word."""

import dataclasses

import pytest
import torch

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.decoder.bonus.evidence import ClassSizes, WordEvidence
from captioner.nn.model import CaptionModel, ModelOptions

OPTIONS = ModelOptions(
    encoder="efficientnet_lite0",
    image_size=64,
    attention="scaled_dot_product",
    decoder="two_lstm",
    features=16,
    hidden=16,
    embedding=16,
    bonus=BonusOptions(classes=3, named_words=2),
)


SIZES = ClassSizes(channels=4, query=6, grid=(4, 4), shrink=2)


def evidence() -> WordEvidence:
    """Two classes with words of their own (columns 0 and 1 of the vocabulary's 7 and 8); a third without."""
    module = WordEvidence(BonusOptions(classes=3, named_words=2), 10, SIZES)
    module.membership.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    module.column[7], module.column[8] = 0, 1
    return module


def test_only_the_words_of_classes_at_attended_cells_gain() -> None:
    module = evidence()
    with torch.no_grad():
        module.classes.weight.zero_()
        module.classes.weight[0, 0] = module.classes.weight[1, 1] = 20.0
        module.classes.bias.copy_(torch.tensor([0.0, 0.0, 10.0]))
    deepest = torch.zeros(1, 4, 2, 2)
    deepest[0, 0, 0, 0] = 1.0  # class 0 at the top left
    deepest[0, 1, 1, 1] = 1.0  # class 1 at the bottom right
    attention = torch.zeros(1, 2, 16)
    attention[0, 0, 0], attention[0, 1, 15] = 1.0, 1.0
    seen, there = module.seen(attention), module(module.class_logits(deepest))

    def gains(before: int) -> torch.Tensor:
        tokens = torch.full((1, 2), before)
        return module.add(torch.zeros(1, 2, 10), tokens, torch.zeros(1, 2, 6), seen, there)

    said = gains(before=4)
    assert said[0, 0, 7] > 1.0 and said[0, 0, 8] == 0.0
    assert said[0, 1, 8] > 1.0 and said[0, 1, 7] == 0.0
    assert said[0, :, [0, 1, 2, 3, 4, 5, 6, 9]].abs().max() == 0.0
    assert gains(before=Vocabulary.start_id).abs().max() == 0.0  # captions do not begin with a name


def test_steps_and_teacher_forcing_agree() -> None:
    torch.manual_seed(0)
    model = CaptionModel(OPTIONS, 12).eval()
    evidence = model.evidence
    evidence.membership.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    evidence.column[5], evidence.column[6] = 0, 1
    pixels = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    memory, state = model.encode(pixels)
    assert memory["evidence"].shape == (2, 4, 2)
    tokens = torch.randint(4, 12, (2, 1, 3))
    logits, _ = model.decoder(tokens, memory, state)
    for position in range(3):
        step = model.decoder.step(tokens[:, :, position], memory, state)
        torch.testing.assert_close(step.logits, logits[:, :, position])
        state = step.state


def test_words_of_one_class_are_looked_up() -> None:
    """Words of one class first: the same evidence as by multiplying with all classes."""
    torch.manual_seed(0)
    membership = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    column = torch.tensor([3, 3, 2, 0, 1])
    options = BonusOptions(classes=3, named_words=3)
    multiplied, looked_up = (
        WordEvidence(dataclasses.replace(options, single_words=single), 5, SIZES) for single in (0, 2)
    )
    looked_up.classes = multiplied.classes
    for module in (multiplied, looked_up):
        module.name(membership, column)
    assert looked_up.only.tolist() == [0, 2]
    scores = multiplied.class_logits(torch.randn(2, 4, 2, 2))
    torch.testing.assert_close(looked_up(scores), multiplied(scores))
    for module in (multiplied, looked_up):
        assert module.named_before(2).tolist() == [True, False, True]


def test_a_rank_makes_a_classifier_of_many_classes_smaller() -> None:
    options, sizes = BonusOptions(classes=500, named_words=2), SIZES._replace(channels=64)
    full, narrow = (WordEvidence(dataclasses.replace(options, class_rank=rank), 5, sizes) for rank in (0, 16))
    sizes = [sum(p.numel() for p in module.parameters()) for module in (full, narrow)]
    assert sizes[0] - sizes[1] == 64 * 500 - 16 * (64 + 500)
    assert narrow.class_logits(torch.zeros(1, 64, 2, 2)).shape == (1, 4, 500)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"classes": 3, "named_words": 2, "single_words": 3}, "single_words must be from 0"),
        ({"class_rank": 4}, "need classes"),
        ({"classes": 3, "class_rank": -1}, "at least 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(values: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        BonusOptions(**values)


def test_evidence_can_be_made_stronger() -> None:
    model = CaptionModel(OPTIONS, 12)
    deepest = torch.randn(1, 1280, 2, 2)
    with torch.no_grad():
        model.evidence.membership.fill_(1.0)
        scores = model.evidence.class_logits(deepest)
        before = model.evidence(scores)
        model.strengthen_evidence(2.5)
        torch.testing.assert_close(model.evidence(scores), 2.5 * before)


def test_a_model_without_classes_has_no_evidence_to_strengthen() -> None:
    CaptionModel(ModelOptions(encoder="efficientnet_lite0", image_size=64), 12).strengthen_evidence(2.0)
