"""Learning from trained models."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import ModelOptions
from captioner.training.loop.losses import forward
from captioner.training.objectives.distillation import Teachers, distillation
from captioner.training.weights import checkpoint

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def runs(data: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of other seeds."""
    folder = tmp_path_factory.mktemp("teachers")
    for seed in (1, 2):
        options = squares.options((squares.stage(epochs=3),), seed=seed)
        squares.trainer(options, folder / f"{seed}", data, cache).run()
    return folder


def names(runs: Path) -> tuple[str, ...]:
    return tuple(str(runs / seed / "best.pt") for seed in "12")


def test_teachers_predict_the_mean(runs: Path, data: Path) -> None:
    [model, words, *_], [other, *_] = (checkpoint.load_model(Path(name)) for name in names(runs))
    teachers = Teachers(names(runs), data, model, words, 0, CPU)
    pixels = torch.randint(0, 256, (2, squares.SIZE, squares.SIZE, 3), dtype=torch.uint8)
    tokens = torch.randint(len(words), (2, 3, 4))
    found = teachers.predict(teachers.see([pixels], None), tokens)
    expected = [one.decoder(tokens, *one.encode(pixels))[0].softmax(-1) for one in (model, other)]
    torch.testing.assert_close(found, torch.stack(expected).mean(0))
    assert not found.requires_grad


def test_a_pupil_learns_to_say_what_its_teachers_would(
    runs: Path, data: Path, cache: Path, tmp_path: Path
) -> None:
    source = dataclasses.replace(squares.options().data[0], repeat=4)
    stage = squares.stage(epochs=4, objectives={"distillation": {"weight": 1.0, "teachers": names(runs)}})
    options = squares.options((stage,), data=(source,), seed=3)
    squares.trainer(options, tmp_path, data, cache).run()
    pupil, words, *_ = checkpoint.load_model(tmp_path / "best.pt")
    teachers = Teachers(names(runs), data, pupil, words, 0, CPU)
    photos = [squares.draw(color, "left", 100) for color in squares.COLORS]
    pixels = torch.from_numpy(np.stack([np.array(photo) for photo in photos]))
    tokens = torch.tensor([[[words.start_id, *words.encode("a")]]]).expand(len(pixels), -1, -1)
    theirs = teachers.predict(teachers.see([pixels], None), tokens)
    said = pupil.decoder(tokens, *pupil.encode(pixels))[0].softmax(-1)
    assert (said - theirs).abs().sum(-1).mean() < 0.3  # of 2


def test_a_new_encoder_learns_the_grid_of_a_teacher_with_another(
    runs: Path, data: Path, cache: Path, tmp_path: Path
) -> None:
    [teacher, _] = names(runs)
    model = dataclasses.replace(squares.options().model, encoder="efficientnet_lite0")
    objective = {"distillation": {"weight": 1.0, "teachers": [teacher], "grid": 4.0}}
    stage = squares.stage(epochs=4, objectives=objective)
    options = squares.options((stage,), model=model, start=teacher, ema_decay=0.0)
    trainer = squares.trainer(options, tmp_path, data, cache)
    pixels = torch.from_numpy(np.array(squares.draw("red", "left", 100)))[None]
    wanted = checkpoint.load_model(Path(teacher))[0].encoder(pixels).detach()

    @torch.no_grad()
    def error() -> float:
        return float((trainer.model.eval().encoder(pixels) - wanted).square().mean())

    before = error()
    trainer.run()
    assert error() < 0.5 * before


def test_the_error_of_the_grid_and_the_divergence_of_the_classes_count(
    data: Path, cache: Path, tmp_path: Path
) -> None:
    """The teacher is what the run starts from, so that only what a test changes differs."""
    stage = squares.stage(epochs=1)
    start = squares.options((stage,), model=squares.CLASSIFYING, weights="imagenet")
    squares.trainer(start, tmp_path / "start", data, cache).run()
    teacher = str(tmp_path / "start" / "best.pt")
    table = {"teachers": [teacher], "grid": 2.0, "classes": 3.0}
    stage = squares.stage(epochs=1, objectives={"distillation": table})
    again = squares.options((stage,), model=ModelOptions(), start=teacher)
    trainer = squares.trainer(again, tmp_path / "again", data, cache)
    trainer.model.eval()
    run, [batch, *_] = trainer.losses.run, trainer.losses.batches(0)
    objective = trainer.losses["distillation"]

    def loss() -> float:
        with torch.no_grad():
            step = forward(run, trainer.features, batch)
            step.logits.zero_()  # all words cost the same each time
            return float(objective.loss(step))

    evidence, words = trainer.model.evidence, loss()
    assert evidence is not None
    with torch.no_grad():
        evidence.classes.bias[0] += 100.0  # only class 0 is left, which had nearly nothing
    classes = loss() - words
    assert classes > 2 * 3.0
    with torch.no_grad():
        trainer.model.encoder.norm.bias += 0.5
    assert loss() - words - classes == pytest.approx(2.0 * 0.25, rel=1e-3)


def test_distillation_by_hand() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 1, 3, 5, dtype=torch.float32)
    theirs = torch.rand(2, 1, 3, 5).softmax(-1)
    targets = torch.tensor([[[4, 4, Vocabulary.pad_id]], [[4, 4, 4]]])
    total = 0.0
    for image, word in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
        share = logits[image, 0, word].double().exp() / logits[image, 0, word].double().exp().sum()
        total -= float((theirs[image, 0, word].double() * share.log()).sum())
    assert float(distillation(logits, theirs, targets)) == pytest.approx(total / 5, rel=1e-5)


def test_teachers_that_cannot_teach_are_refused(runs: Path, data: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"objectives\.distillation: distillation needs teachers"):
        squares.stage(objectives={"distillation": 0.5})
    stage = squares.stage(
        epochs=1, objectives={"cross_entropy": 0.5, "distillation": {"teachers": names(runs)}}
    )
    with pytest.raises(DataError, match="those of a single teacher"):
        squares.stage(objectives={"distillation": {"teachers": names(runs), "grid": 1.0}})
    alone = {"distillation": {"teachers": names(runs)[:1], "classes": 1.0}}
    with pytest.raises(DataError, match="needs classes"):
        squares.trainer(squares.options((squares.stage(objectives=alone),)), tmp_path, data, cache)
    frozen = {"stages": (dataclasses.replace(stage, tuned_segments=0),)}  # the teachers' were tuned
    smaller = {"model": dataclasses.replace(squares.options().model, image_size=64)}
    for reason, changes in (("words", {"min_count": 30}), ("features", frozen), ("features", smaller)):
        options = dataclasses.replace(squares.options((stage,)), **changes)
        with pytest.raises(DataError, match=rf"best\.pt (has|sees) other {reason}"):
            squares.trainer(options, tmp_path, data, cache)
