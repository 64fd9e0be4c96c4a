"""A tuned encoder that keeps what the pretrained one knows; starts that add classes or another attention."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.encoder import pretrained_classifier
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.training.config.train_options import TrainOptions
from captioner.training.data.augment import hide_means
from captioner.training.loop.losses import Losses, forward
from captioner.words.imagenet import CLASSES

MODEL = squares.CLASSIFYING
OBJECTIVES = {"cross_entropy": 1.0, "class_retention": 1.0}


def options(**changes: object) -> TrainOptions:
    stage = squares.stage(objectives=OBJECTIVES, epochs=1, hidden_means=0.5)
    data = dataclasses.replace(squares.options().data[0])
    values = {"model": MODEL, "weights": "imagenet", "data": (data,)} | changes
    return squares.options((stage,), **values)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared: exporting the pretrained encoder takes long."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The squares; one of their captions names a class, so that the vocabulary has a word for one."""
    folder = tmp_path_factory.mktemp("retention")
    path = squares.write(folder)
    path.write_text(path.read_text().replace('"raw": "a ', '"raw": "a zebra ', 3))
    return folder


def test_the_pretrained_encoder_loses_nothing_and_a_changed_one_does(
    data: Path, cache: Path, tmp_path: Path
) -> None:
    trainer = squares.trainer(options(), tmp_path / "run", data, cache)
    evidence = trainer.model.evidence
    weight, _ = pretrained_classifier(MODEL.encoder)
    assert torch.equal(evidence.classes.weight, weight)
    assert trainer.options.model.bonus.named_words == len(evidence.scale) > 0
    trainer.model.eval()
    batch = trainer.losses.batches(0)[0]
    retention = trainer.losses["class_retention"]
    with torch.no_grad():
        as_it_was = retention.loss(forward(trainer.losses.run, trainer.features, batch))
        assert float(as_it_was) < 0.2  # half precision, and photos mirrored after instead of before
        for parameter in trainer.model.encoder.backbone.segments[-1].parameters():
            parameter.mul_(0.8)
        changed = retention.loss(forward(trainer.losses.run, trainer.features, batch))
    assert float(changed) > 2 * float(as_it_was)
    trainer.run()


def test_nothing_waits_for_a_gpu(
    data: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meta tensors have no values to wait for, and do not mix with those of the CPU."""
    names = {
        "name_continuation": 4.0,
        "name_proposal": 8.0,
        "repetition_cost": 2.0,
        "attended_detection": 0.3,
    }
    model = squares.with_bonus(MODEL, checklist_weight=1.2, **names)
    stage = squares.stage(
        objectives={
            **OBJECTIVES,
            "cross_entropy": {"as_searched": True},
            "bag_of_words": 0.3,
            "pointing": 0.1,
        },
        hidden_means=0.5,
        zoom=0.5,
        stochastic_depth=0.1,
    )
    run_options = dataclasses.replace(options(model=model), stages=(stage,))
    trainer = squares.trainer(run_options, tmp_path, data, cache)
    meta = torch.device("meta")
    run = dataclasses.replace(trainer.losses.run, device=meta, model=trainer.model.to(meta))
    losses = Losses(run, 0)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # there is none for meta
    loss, told = losses.loss(forward(run, trainer.features, losses.batches(0)[0]))
    loss.backward()
    assert set(told) == {"cross_entropy", "class_retention", "bag_of_words", "pointing"}


def test_it_needs_classes() -> None:
    with pytest.raises(DataError, match="class_retention needs"):
        options(model=dataclasses.replace(MODEL, bonus=BonusOptions()))


def test_a_start_may_get_classes_and_another_attention(data: Path, cache: Path, tmp_path: Path) -> None:
    plain = dataclasses.replace(MODEL, bonus=BonusOptions(), attention="additive")
    first = squares.options((squares.stage(epochs=1),), model=plain, weights="imagenet")
    squares.trainer(first, tmp_path / "first", data, cache).run()
    start = str(tmp_path / "first" / "last.pt")
    changed = ModelOptions(bonus=BonusOptions(classes=CLASSES), attention="scaled_dot_product")
    second = squares.trainer(options(start=start, model=changed), tmp_path / "second", data, cache)
    assert second.options.model.attention == "scaled_dot_product"
    second.run()
    # What has classes keeps them, with the words that name them.
    third = squares.trainer(
        options(start=str(tmp_path / "second" / "last.pt"), model=ModelOptions()),
        tmp_path / "third",
        data,
        cache,
    )
    ours, theirs = third.model.evidence, second.model.evidence
    assert torch.equal(ours.column, theirs.column) and torch.equal(ours.membership, theirs.membership)


@pytest.mark.parametrize("frozen", [True, False])
def test_the_evidence_of_classes_can_be_frozen(data: Path, cache: Path, tmp_path: Path, frozen: bool) -> None:
    changed = dataclasses.replace(options(), stages=(squares.stage(epochs=1, frozen_evidence=frozen),))
    trainer = squares.trainer(changed, tmp_path / "run", data, cache)
    before = {name: value.clone() for name, value in trainer.model.decoder.state_dict().items()}
    trainer.run()
    trained = {
        name
        for name, value in trainer.model.decoder.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert trained
    assert any(name.startswith("bonus.evidence.") for name in trained) is not frozen


def test_hidden_means_leave_what_is_attended() -> None:
    torch.manual_seed(0)
    model = CaptionModel(dataclasses.replace(MODEL, bonus=BonusOptions()), 9).eval()
    memory, state = model.encode(torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8))
    hidden, first = hide_means(memory, state, 0.5)
    gone = (hidden["mean"] == 0).all(dim=1)
    assert 0 < int(gone.sum()) < 8
    assert torch.equal(gone, (first["hidden"] == 0).all(dim=2).squeeze(1))
    assert torch.equal(hidden["values"], memory["values"])
    assert hide_means(memory, state, 0.0)[0] is memory
