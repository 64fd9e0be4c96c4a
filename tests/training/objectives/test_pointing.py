"""Maps of names learn where the classes of the names are."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support import squares
from torch import Tensor

from captioner.errors import DataError
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import ModelOptions
from captioner.training.config.train_options import TrainOptions
from captioner.training.loop.losses import forward
from captioner.training.objectives.pointing import pointing

MODEL = dataclasses.replace(squares.CLASSIFYING, image_size=64)  # of four cells at the deepest output


def options(model: ModelOptions = MODEL, **changes: Any) -> TrainOptions:
    stage = squares.stage(objectives={"cross_entropy": 1.0, "pointing": 0.1}, epochs=1, batch_captions=60)
    return squares.options((stage,), model=model, weights="imagenet", **changes)


def test_the_mean_cross_entropy_of_the_sure_words() -> None:
    maps = torch.tensor([[[[0.5, 0.25, 0.25], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]]])
    shares = torch.tensor([[[[0.3, 0.1, 0.0], [0.09, 0.05, 0.09], [0.0, 0.0, 0.1]]]])
    first = -(0.75 * math.log(0.5) + 0.25 * math.log(0.25))
    third = -math.log(0.8)
    assert float(pointing(maps, shares, sure=0.1)) == pytest.approx((first + third) / 2, rel=1e-5)
    assert float(pointing(maps, shares, sure=0.2)) == pytest.approx(first, rel=1e-5)
    assert float(pointing(maps, shares, sure=0.5)) == 0
    # A map that misses the thing altogether costs much, but not endlessly.
    missed = torch.tensor([[[[0.0, 0.0, 1.0]]]])
    assert 10 < float(pointing(missed, torch.tensor([[[[0.2, 0.0, 0.0]]]]), sure=0.1)) < 20


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared: exporting the pretrained encoder takes long."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The squares; one caption of each names a class."""
    folder = tmp_path_factory.mktemp("pointing")
    path = squares.write(folder)
    path.write_text(path.read_text().replace('"raw": "a square', '"raw": "a zebra square'))
    return folder


def make_certain(model: Any, word: int) -> None:
    """Let the classes of a word have nearly all of the probability in every cell."""
    evidence = model.evidence
    named = int(evidence.column[word])
    single = len(evidence.only)
    classes = evidence.only[named] if named < single else evidence.membership[:, named - single].nonzero()
    with torch.no_grad():
        evidence.classes.bias[classes] += 50.0


def test_only_names_of_classes_that_are_seen_count(data: Path, cache: Path, tmp_path: Path) -> None:
    trainer = squares.trainer(options(), tmp_path, data, cache)
    [zebra] = trainer.vocabulary.encode("zebra")
    objective, run = trainer.losses["pointing"], trainer.losses.run
    batch = next(b for b in trainer.losses.batches(0) if (b.captions == zebra).any())

    def loss(sure: float) -> Tensor:
        objective.options = dataclasses.replace(objective.options, sure=sure)
        return objective.loss(forward(run, trainer.features, batch))

    assert float(loss(0.9).detach()) == 0
    make_certain(trainer.model, zebra)
    trainer.model.eval()
    step = forward(run, trainer.features, batch)
    # The zebra is everywhere, so that an even map would be best.
    cells = step.model.evidence.seen(step.attention)[step.targets == zebra]
    expected = -cells.log().mean()
    assert float(expected.detach()) > 1
    found = objective.loss(step)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-3)


def test_the_evidence_learns_nothing_from_it(data: Path, cache: Path, tmp_path: Path) -> None:
    trainer = squares.trainer(options(), tmp_path, data, cache)
    make_certain(trainer.model, trainer.vocabulary.encode("zebra")[0])
    batch = next(b for b in trainer.losses.batches(0) if b.captions.shape[1] > 1)
    trainer.losses["pointing"].loss(forward(trainer.losses.run, trainer.features, batch)).backward()
    learns = {name for name, p in trainer.model.named_parameters() if p.grad is not None and p.grad.any()}
    assert any(name.startswith("decoder.attention.") for name in learns)
    assert not any("evidence" in name for name in learns)
    trainer.run()


def test_it_needs_classes() -> None:
    with pytest.raises(DataError, match=r"stage words, pointing: pointing needs \[model.bonus\] classes"):
        options(dataclasses.replace(MODEL, bonus=BonusOptions()))


def test_a_start_must_have_classes(data: Path, cache: Path, tmp_path: Path) -> None:
    plain = squares.options((squares.stage(epochs=1),))
    squares.trainer(plain, tmp_path / "first", data, cache).run()
    start = str(tmp_path / "first" / "last.pt")
    for name in ("pointing", "class_retention"):
        stage = squares.stage(objectives={"cross_entropy": 1.0, name: 0.1})
        run = squares.options((stage,), model=ModelOptions(), start=start)
        with pytest.raises(DataError, match=f"{name} needs classes, and the model"):
            squares.trainer(run, tmp_path / name, data, cache)
