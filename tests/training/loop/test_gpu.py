"""What a GPU needs: that nothing waits for it in a step. Meta tensors have no values, and cannot be read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares
from torch import nn

from captioner.errors import DataError
from captioner.model.search.choices import StepRequest, choose_among
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.nn.stepper import choose_there
from captioner.training.loop.losses import Losses, forward
from captioner.training.loop.step_losses import READ_EVERY, StepLosses
from captioner.training.objectives.sampling import without_dropout, without_padding

META, CUDA = torch.device("meta"), torch.device("cuda")
DETECTING = ModelOptions(
    encoder=squares.options().model.encoder,
    image_size=squares.SIZE,
    stride=8,
    features=24,
    attention="scaled_dot_product",
    attention_hidden=16,
    hidden=32,
    embedding=24,
    decoder="two_lstm",
    bonus=BonusOptions(checklist_weight=1.0, attended_detection=0.3, repetition_cost=1.0),
)
OBJECTIVES = {"cross_entropy": {"as_searched": True}, "doubly_stochastic": 0.1, "attention_entropy": 0.02}


@pytest.mark.parametrize("resize", ["squash", "letterbox"])
def test_a_step_reads_nothing_from_the_device(data: Path, cache: Path, tmp_path: Path, resize: str) -> None:
    stage = squares.stage(
        objectives={**OBJECTIVES, "bag_of_words": 0.2},
        hidden_cells=0.1,
        hidden_features=0.1,
        hidden_means=0.2,
        zoom=0.8 if resize == "squash" else 1.0,
        disturbed=0.5 if resize == "squash" else 0.0,
    )
    options = squares.options((stage,), model=dataclasses.replace(DETECTING, resize=resize))
    trainer = squares.trainer(options, tmp_path, data, cache)
    run = dataclasses.replace(trainer.losses.run, device=META, model=trainer.model.to(META))
    losses = Losses(run, 0)
    loss, told = losses.loss(forward(run, trainer.features, losses.batches(0)[0]))
    loss.backward()
    assert set(told) == {*OBJECTIVES, "bag_of_words"}
    norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    StepLosses(CUDA, 0).add({"loss": loss, **told}, norm)


def test_losses_are_read_now_and_then() -> None:
    taken = StepLosses(CUDA, first=10)
    one = torch.tensor(1.0)
    for step in range(READ_EVERY):
        assert taken.mean()["loss"] == 0
        taken.add({"loss": one * step, "words": one * step / 2, "maps": one}, one)
    assert taken.mean() == {"loss": 24.5, "losses": {"words": 12.25, "maps": 1.0}}
    assert taken.mean(last=1)["loss"] == 49
    taken.add({"loss": one}, one)
    taken.add({"loss": one}, one / 0)
    with pytest.raises(DataError, match="norm of the gradient is inf at batch 61"):
        taken.read()


def test_the_best_words_are_found_on_the_device() -> None:
    random = np.random.default_rng(0)
    log_probs = random.normal(size=(3, 2, 50)).astype(np.float32)
    for best, width in ((4, 2), (60, 0)):
        forbidden = random.integers(50, size=(3, 2, width))
        request = StepRequest(best, forbidden, np.array([3, 4]))
        found = choose_there(torch.from_numpy(log_probs), request)
        for one, other in zip(found, choose_among(log_probs, request), strict=True):
            assert np.array_equal(one, other) and one.dtype == other.dtype
    everywhere = StepRequest(4, np.zeros((1, 1, 1), dtype=np.int64), np.array([3]))
    assert not (choose_there(torch.from_numpy(log_probs), everywhere).tokens == 0).any()


def test_recurrent_networks_keep_their_gradient_without_dropout() -> None:
    """cuDNN refuses to compute the gradient of a network that was not in training."""
    decoder = CaptionModel(DETECTING, 20).decoder.train()
    with without_dropout(decoder):
        recurrent = [module for module in decoder.modules() if isinstance(module, nn.RNNBase)]
        assert len(recurrent) == 2 and all(module.training and not module.dropout for module in recurrent)
        assert not any(module.training for module in decoder.modules() if isinstance(module, nn.Dropout))
    assert all(module.training for module in decoder.modules())


def test_padding_behind_all_samples_is_cut_off() -> None:
    captions = torch.tensor([[[1, 5, 2, 0, 0], [1, 5, 6, 2, 0]], [[1, 2, 0, 0, 0], [1, 7, 2, 0, 0]]])
    assert torch.equal(without_padding(captions), captions[..., :4])
    assert torch.equal(without_padding(captions[..., :4]), captions[..., :4])
