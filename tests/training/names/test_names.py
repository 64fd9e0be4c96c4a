"""A run whose model is helped with names of classes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support import squares

from captioner.export.bundle import export_bundle
from captioner.model.vocabulary import Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.training.config.train_options import TrainOptions
from captioner.training.names.class_words import ClassWords, caption_counts
from captioner.training.weights.checkpoint import load_model
from captioner.training.weights.start import Start
from captioner.words.imagenet import CLASSES

MODEL = squares.with_bonus(
    squares.CLASSIFYING,
    checklist_weight=0.2,
    repetition_cost=2.0,
    related_cost=3.0,
    name_continuation=3.0,
    name_proposal=8.0,
)


def options(model: ModelOptions = MODEL, **changes: object) -> TrainOptions:
    return squares.options((squares.stage(epochs=1),), model=model, weights="imagenet", **changes)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared: exporting the pretrained encoder takes long."""
    return tmp_path_factory.mktemp("cache")


def test_a_bundle_holds_the_names_and_a_run_from_it_keeps_them(
    data: Path, cache: Path, tmp_path: Path
) -> None:
    trainer = squares.trainer(options(), tmp_path / "run", data, cache)
    words = ClassWords.of(trainer.vocabulary, trainer.options.model.bonus)
    expected = words.names(caption_counts(trainer.train_examples, trainer.vocabulary))
    names = trainer.model.names
    assert trainer.options.model.bonus.following_words == expected.membership.shape[1] > 100
    assert torch.equal(names.proposed_gain, 8 * expected.proposed_gain)
    trainer.run()
    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "bundle")  # compares the graphs with the network

    start = Start.read("bundle", tmp_path)  # its words are in another order
    again = CaptionModel(start.model, len(start.vocabulary))
    start.give(again, start.vocabulary)
    ours, vocabulary, *_ = load_model(tmp_path / "run" / "best.pt")

    def followers(model: CaptionModel, words: tuple[str, ...]) -> set[tuple[str, str]]:
        after = model.names.following_token.tolist()
        return {(words[i], words[j]) for i, row in enumerate(after) for j in row if j}

    def related_pairs(model: CaptionModel, words: tuple[str, ...]) -> set[tuple[str, str]]:
        return {(words[i], words[j]) for i, row in enumerate(model.related.tolist()) for j in row if j}

    found = followers(again, start.vocabulary.words)
    assert found == followers(ours, vocabulary.words)
    assert ("guinea", "pig") in found
    related = related_pairs(again, start.vocabulary.words)
    assert related == related_pairs(ours, vocabulary.words)
    assert {("tabby", "cat"), ("cat", "tabby")} <= related
    assert [start.vocabulary.words[i] for i in again.names.proposed[338:339]] == ["guinea"]

    # It can learn more words.
    more = Vocabulary([*start.vocabulary.words, "crimson"])
    model = CaptionModel(start.model, len(more))
    start.give(model, more)
    assert followers(model, more.words) == found
    assert related_pairs(model, more.words) == related
    for name in ("repetition", "names.following_gain"):
        before, after = (own.decoder.bonus.get_buffer(name) for own in (again, model))
        assert torch.equal(after[:-1], before)

    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "plain", checklist_weight=0.0)
    plain = Start.read("plain", tmp_path).model.bonus
    assert plain.name_proposal == plain.related_cost == 0


def test_names_can_be_added_to_a_trained_model(data: Path, cache: Path, tmp_path: Path) -> None:
    plain = squares.with_bonus(MODEL, name_continuation=0.0, name_proposal=0.0)
    squares.trainer(options(plain), tmp_path / "run", data, cache).run()
    for name in ("captions.json", "images"):
        (tmp_path / name).symlink_to(data / name)
    added = ModelOptions(bonus=BonusOptions(classes=CLASSES, name_continuation=2.0))
    more = squares.options((squares.stage(epochs=1),), start="run/best.pt", model=added)
    trainer = squares.trainer(more, tmp_path / "more", tmp_path, cache)
    assert trainer.model.names.following_gain.max() == 2
    assert trainer.model.names.proposed_gain.max() == 0
    trainer.run()
