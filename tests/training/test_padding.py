"""What stands behind the end of a caption counts for nothing in training, with any decoder and refiner."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from support import squares
from torch import Tensor

from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder import DECODERS
from captioner.nn.model import CaptionModel
from captioner.training.objectives.attention_entropy import attention_entropy
from captioner.training.objectives.cross_entropy import cross_entropy
from captioner.training.objectives.doubly_stochastic import doubly_stochastic
from captioner.training.objectives.self_critical import policy_gradient

WORDS, LENGTHS = 13, ((3, 5), (7, 2), (4, 4))  # of the captions of three images, in words


@pytest.fixture(params=sorted(DECODERS))
def model(request: pytest.FixtureRequest) -> CaptionModel:
    options = dataclasses.replace(squares.options().model, decoder=request.param, refiner_layers=1)
    return CaptionModel(options, WORDS).double().eval()


def pixels() -> Tensor:
    return torch.randint(0, 256, (len(LENGTHS), squares.SIZE, squares.SIZE, 3), dtype=torch.uint8)


def captions(padding: int = 0) -> Tensor:
    """Start, words, end, and `padding` more than the longest needs."""
    longest = max(max(lengths) for lengths in LENGTHS)
    made = torch.full((len(LENGTHS), 2, longest + 2 + padding), Vocabulary.pad_id)
    for image, lengths in enumerate(LENGTHS):
        for number, length in enumerate(lengths):
            words = torch.randint(Vocabulary.unknown_id + 1, WORDS, (length,))
            ids = [Vocabulary.start_id, *words.tolist(), Vocabulary.end_id]
            made[image, number, : length + 2] = torch.tensor(ids)
    return made


def losses(model: CaptionModel, shown: Tensor, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Every term that training adds up."""
    logits, attention = model.decoder(inputs, *model.encode(shown))
    advantages = torch.linspace(-1, 2, targets[..., 0].numel()).view_as(targets[..., 0])
    return {
        "likelihood": cross_entropy(logits, targets, 0.1),
        "coverage": doubly_stochastic(attention, targets),
        "entropy": attention_entropy(attention, targets),
        "reward": policy_gradient(logits, targets, advantages),
    }


def everything(model: CaptionModel, shown: Tensor, inputs: Tensor, targets: Tensor) -> list[Tensor]:
    """The losses and the gradients of their sum."""
    terms = list(losses(model, shown, inputs, targets).values())
    return [*terms, *torch.autograd.grad(torch.stack([t.double() for t in terms]).sum(), model.parameters())]


def test_other_words_behind_the_end_give_the_same_bits(model: CaptionModel) -> None:
    model.float()
    shown, known = pixels(), captions(padding=2)
    inputs, targets = known[:, :, :-1], known[:, :, 1:]
    others = torch.randint_like(inputs, WORDS)
    noisy = torch.where(targets == Vocabulary.pad_id, others, inputs)
    assert (noisy != inputs).sum() > 10
    for ours, theirs in zip(
        everything(model, shown, inputs, targets), everything(model, shown, noisy, targets), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_more_padding_gives_the_same(model: CaptionModel) -> None:
    shown, known = pixels(), captions(padding=4)
    found = [everything(model, shown, cut[:, :, :-1], cut[:, :, 1:]) for cut in (known, known[:, :, :-4])]
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)


def test_a_padded_batch_is_its_captions_one_by_one(model: CaptionModel) -> None:
    """Weighted by their words, as the mean over words has it."""
    shown, known = pixels(), captions()
    logits, attention = model.decoder(known[:, :, :-1], *model.encode(shown))
    total, words = torch.zeros((), dtype=torch.float64), 0
    for image, lengths in enumerate(LENGTHS):
        one = model.encode(shown[image : image + 1])
        for number, length in enumerate(lengths):
            alone = known[image : image + 1, number : number + 1, : length + 2]
            said, looked = model.decoder(alone[:, :, :-1], *one)
            place = (slice(image, image + 1), slice(number, number + 1), slice(length + 1))
            torch.testing.assert_close(said, logits[place])
            torch.testing.assert_close(looked, attention[place])
            total = total + cross_entropy(said, alone[:, :, 1:], 0.1).double() * (length + 1)
            words += length + 1
    together = cross_entropy(logits, known[:, :, 1:], 0.1)
    torch.testing.assert_close(together.double(), total / words, rtol=1e-5, atol=1e-6)
