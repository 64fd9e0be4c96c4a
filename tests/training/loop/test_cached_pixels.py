"""Runs that cache the pixels of photos, and compute frozen segments at each step."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.training.config.train_options import TrainOptions
from captioner.training.loop.losses import forward


def options(cached: str = "pixels", **changes: Any) -> TrainOptions:
    """A run that trains no segment of its encoder."""
    stage = squares.stage(objectives={"cross_entropy": 1.0}, epochs=1, tuned_segments=0, **changes)
    return squares.options((stage,), cached=cached)


def test_frozen_segments_teach_the_same_from_pixels_as_from_features(
    data: Path, cache: Path, tmp_path: Path
) -> None:
    first = squares.trainer(options("features"), tmp_path / "features", data, cache)
    [features] = first.run()
    trainer = squares.trainer(options("pixels"), tmp_path / "pixels", data, cache)
    backbone = trainer.model.encoder.backbone
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    [pixels] = trainer.run()
    assert pixels["loss"] == pytest.approx(features["loss"], rel=1e-3)
    perplexities = [record["val"]["squares"]["perplexity"] for record in (features, pixels)]
    assert perplexities[1] == pytest.approx(perplexities[0], rel=1e-2)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert not any(parameter.grad is not None for parameter in backbone.parameters())


def test_the_model_sees_disturbed_pixels_and_its_teachers_do_not(
    data: Path, cache: Path, tmp_path: Path
) -> None:
    trainer = squares.trainer(options(disturbed=1.0), tmp_path, data, cache)
    run = trainer.losses.run
    plain = dataclasses.replace(run, stage=dataclasses.replace(run.stage, disturbed=0.0))
    batch = trainer.losses.batches(0)[0]
    seen, as_it_is = forward(run, trainer.features, batch), forward(plain, trainer.features, batch)
    assert torch.equal(seen.features[0], as_it_is.features[0])
    assert not torch.allclose(seen.outputs[-1], as_it_is.outputs[-1], rtol=1e-3)
    trainer.run()


def test_disturbances_need_pixels() -> None:
    with pytest.raises(DataError, match="set cached"):
        options("features", disturbed=0.5)
    all_tuned = squares.options((squares.stage(disturbed=0.5),))
    assert all_tuned.frozen_segments == 0
