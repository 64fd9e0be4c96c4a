"""What it costs to say a word twice in a caption."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.export.bundle import export_bundle
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import CaptionModel
from captioner.references import CaptionedImage
from captioner.references.files import ImageFiles
from captioner.training.data.examples import Example
from captioner.training.names.repetition import repetition_costs
from captioner.training.weights.checkpoint import load_model
from captioner.training.weights.start import Start


def examples(captions: list[str], data: Path) -> list[Example]:
    image = CaptionedImage("a", tuple(captions), "train")
    return [Example(image, "squares", 1, ImageFiles([data / "images"]))]


def test_words_cost_by_how_often_captions_repeat_them(data: Path) -> None:
    vocabulary = Vocabulary.build(["a dog sees cats"], 1)
    said = ["a dog sees a dog"] * 2 + ["a dog sees a cat"] * 8 + ["a dog sees"] * 70
    costs = repetition_costs(examples(said, data), vocabulary)
    by_word = dict(zip(vocabulary.words, costs.tolist(), strict=True))
    assert by_word["a"] == 0
    assert by_word["dog"] == pytest.approx(math.log(0.1 / ((2 + 0.1) / (80 + 20))))
    assert by_word["sees"] == pytest.approx(math.log(0.1 / (0.1 / 100)))
    assert by_word["cats"] == pytest.approx(math.log(0.1 / 0.005))
    assert costs[:4].tolist() == [0, 0, 0, 0]


def test_photos_without_captions_do_not_tell(data: Path) -> None:
    with pytest.raises(DataError, match="repetition_cost needs captions"):
        repetition_costs(examples([], data), Vocabulary.build(["a"], 1))


def test_a_run_computes_the_costs_and_its_bundle_holds_them(data: Path, cache: Path, tmp_path: Path) -> None:
    """Also where a run adds them to a trained model; a later run keeps those of its start."""
    model = squares.with_bonus(squares.options().model, checklist_weight=0.2, repetition_cost=2.0)
    options = squares.options((squares.stage(epochs=1),), model=model)
    trainer = squares.trainer(options, tmp_path / "run", data, cache)
    expected = 2 * repetition_costs(trainer.train_examples, trainer.vocabulary)
    assert torch.equal(trainer.model.repetition, expected)
    assert expected.max() > 1
    trainer.run()
    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "bundle")  # compares the graphs with the network
    start = Start.read("bundle", tmp_path)
    ours, vocabulary, *_ = load_model(tmp_path / "run" / "best.pt")
    again = CaptionModel(start.model, len(vocabulary))
    start.give(again, vocabulary)
    assert torch.equal(again.repetition, ours.repetition.half().float())
    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "plain", checklist_weight=0.0)
    assert Start.read("plain", tmp_path).model.bonus.repetition_cost == 0


def test_costs_can_be_added_to_a_trained_model(data: Path, cache: Path, tmp_path: Path) -> None:
    added = BonusOptions(checklist_weight=0.2, repetition_cost=1.0)
    trainer = squares.adding(added, tmp_path, data, cache)
    assert trainer.model.repetition.max() > 1
