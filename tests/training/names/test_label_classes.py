"""Classes of their own for words of labels."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support import squares

from captioner.errors import DataError
from captioner.export.bundle import export_bundle
from captioner.images.opening import load_pixels
from captioner.model.vocabulary import Vocabulary
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.references import CaptionedImage
from captioner.references.files import ImageFiles
from captioner.training.config.train_options import LabelClassOptions, SourceOptions, TrainOptions
from captioner.training.data.examples import Example
from captioner.training.loop.trainer import Trainer
from captioner.training.names import label_classes
from captioner.training.names.class_words import class_names
from captioner.training.names.label_classes import choose_classes
from captioner.training.names.label_words import build_vocabulary
from captioner.training.names.related import related_names
from captioner.training.weights.start import Start
from captioner.words.imagenet import CLASSES

MODEL = squares.with_bonus(
    squares.CLASSIFYING, checklist_weight=0.2, related_cost=3.0, name_continuation=3.0, name_proposal=8.0
)
CAPTIONED = squares.options().data[0]
LABELLED = SourceOptions(name="new", images=("new.images",), labels="labels.json", val="")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Squares with captions; and coarse and fine patterns with labels, one of two words."""
    folder = tmp_path_factory.mktemp("data")
    squares.write(folder)
    (folder / "new.images").mkdir()
    entries, random = [], np.random.default_rng(1)
    for number in range(24):
        cell, words = ((4, ["octopus", "pattern"]), (1, ["stop sign", "pattern"]))[number % 2]
        cells = random.integers(0, 2, (squares.SIZE // cell, squares.SIZE // cell, 1), dtype=np.uint8)
        picture = 255 * cells.repeat(cell, axis=0).repeat(cell, axis=1).repeat(3, axis=2)
        Image.fromarray(picture).save(folder / "new.images" / f"{number}.png")
        entries.append({"filename": f"{number}.png", "split": "train", "words": words})
    (folder / "labels.json").write_text(json.dumps({"images": entries}))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared: exporting the pretrained encoder takes long."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def for_small_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """The features of so small photos are a tenth as large as those of real ones."""
    monkeypatch.setattr(label_classes, "LEARNING_RATE", 0.1)
    monkeypatch.setattr(label_classes, "DECAY", 1e-5)


def options(*tuned: int, **changes: object) -> TrainOptions:
    """A run whose stages tune so many segments."""
    stages = tuple(
        squares.stage(name=str(n), epochs=1, tuned_segments=segments, frozen_evidence=True)
        for n, segments in enumerate(tuned)
    )
    values = {"model": MODEL, "weights": "imagenet", "data": (CAPTIONED, LABELLED), "ema_decay": 0.0}
    return squares.options(stages, **values | {"label_classes": LabelClassOptions(photos=3)} | changes)


def photo(words: Sequence[str] = (), captions: Sequence[str] = ()) -> Example:
    image = CaptionedImage("photo.png", tuple(captions), "train", words=tuple(words))
    return Example(image, "source", 1, ImageFiles([]))


def test_which_words_get_classes() -> None:
    examples = [
        *(photo([word, "thing"]) for word in ("squid", "clam", "stop sign", "snail", "kitchen", "boxing")),
        *(photo(["squid"]), photo(["stop sign"]), photo(["snail"]), photo(["kitchen"]), photo(["boxing"])),
        *(photo(captions=["a kitchen"]) for _ in range(5)),
    ]
    vocabulary = build_vocabulary(examples, min_count=1)
    counts = torch.zeros(len(vocabulary))
    counts[vocabulary.encode("kitchen")[0]] = 5
    wanted = LabelClassOptions(photos=2, captions=4, excluded=("boxing",))

    def chosen(changed: LabelClassOptions, words: Vocabulary = vocabulary) -> tuple[str, ...]:
        return choose_classes(changed, MODEL.bonus, examples, words, counts[: len(words)])

    assert chosen(wanted) == ("squid", "stop sign")  # ImageNet has the snail
    assert chosen(dataclasses.replace(wanted, captions=5)) == ("squid", "stop sign", "kitchen")
    assert chosen(dataclasses.replace(wanted, photos=1)) == ("squid", "stop sign", "clam")
    assert chosen(LabelClassOptions()) == ()
    assert chosen(dataclasses.replace(wanted, excluded=("boxing", "squids"))) == ("stop sign",)


def shares(model: CaptionModel, examples: Sequence[Example]) -> torch.Tensor:
    """The probabilities of the label classes on photos, (photos, label classes)."""
    pixels = np.stack([load_pixels(e.files.read(e.image.name), squares.SIZE) for e in examples])
    with torch.no_grad():
        outputs = model.eval().encoder.outputs(model.encoder.inputs(torch.from_numpy(pixels)), 0, 3)
        scores = model.evidence.class_logits(outputs[-1]).mean(dim=1)
    return torch.softmax(scores, dim=1)[:, CLASSES:]


def check(trainer: Trainer) -> None:
    """The classes have been learnt, and captioned photos have none of them."""
    labelled = [e for e in trainer.train_examples if e.image.words]
    captioned = [e for e in trainer.train_examples if e.image.captions]
    words = trainer.options.model.bonus.label_classes
    right = [words.index(e.image.words[0]) for e in labelled]
    assert (shares(trainer.model, labelled).argmax(dim=1) == torch.tensor(right)).float().mean() > 0.9
    assert shares(trainer.model, labelled).sum(dim=1).mean() > 0.5
    assert shares(trainer.model, captioned).sum(dim=1).mean() < 0.1


def test_a_model_gets_classes_and_its_bundle_keeps_them(data: Path, cache: Path, tmp_path: Path) -> None:
    trainer = squares.trainer(options(3, 0), tmp_path / "run", data, cache)
    assert trainer.options.model.bonus.label_classes == ("octopus", "stop sign")
    # They are fitted to the encoder as it will be.
    assert shares(trainer.model, trainer.train_examples).max() < 1e-6
    trainer._save()
    with pytest.raises(DataError, match="before its label classes were fitted"):
        Start.read("run/last.pt", tmp_path)
    trainer.run()
    check(trainer)

    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "bundle")  # compares the graphs with the network
    start = Start.read("bundle", tmp_path)
    assert start.model.bonus.label_classes == ("octopus", "stop sign")
    again = CaptionModel(start.model, len(start.vocabulary))
    start.give(again, start.vocabulary)
    examples = trainer.train_examples
    assert torch.allclose(shares(again, examples), shares(trainer.model, examples), atol=1e-2)
    number = {word: number for number, word in enumerate(start.vocabulary.words)}
    column = again.evidence.column
    assert again.evidence.only[column[number["octopus"]]] == CLASSES
    assert again.evidence.only[column[number["stop"]]] == CLASSES + 1
    assert number["sign"] in again.names.following_token[number["stop"]]
    assert again.names.proposed[CLASSES:].tolist() == [number["octopus"], number["stop"]]


def test_classes_are_fitted_to_what_cached_pixels_become(data: Path, cache: Path, tmp_path: Path) -> None:
    check(squares.trainer(options(0, cached="pixels"), tmp_path, data, cache))


def test_a_run_stopped_before_its_second_stage_ends_the_same(data: Path, cache: Path, tmp_path: Path) -> None:
    whole = squares.trainer(options(3, 0), tmp_path / "whole", data, cache)
    whole.run()
    part = squares.trainer(options(3, 0), tmp_path / "part", data, cache)
    part._run_epoch()
    again = squares.trainer(options(3, 0), tmp_path / "part", data, cache)
    again.run()
    ours, theirs = again.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_trained_model_gets_more_classes_and_keeps_its_own(data: Path, cache: Path, tmp_path: Path) -> None:
    first = options(3, data=(CAPTIONED,), label_classes=LabelClassOptions())
    squares.trainer(first, tmp_path / "run", data, cache).run()
    for name in ("captions.json", "images", "labels.json", "new.images"):
        (tmp_path / name).symlink_to(data / name)
    before = Start.read("run/best.pt", tmp_path)
    more = options(0, start="run/best.pt", model=ModelOptions())
    trainer = squares.trainer(more, tmp_path / "more", tmp_path, cache)
    check(trainer)
    bonus, examples = trainer.options.model.bonus, trainer.train_examples
    assert before.needs_related(bonus) and not before.needs_related(before.model.bonus)
    expected = related_names(class_names(bonus), examples, trainer.vocabulary)
    assert expected.any() and torch.equal(trainer.model.related, expected)
    # It completes captions for labels as it does without more classes.
    plain = dataclasses.replace(more, label_classes=LabelClassOptions())
    completed = [
        own.losses["label_likelihood"]._completed
        for own in (trainer, squares.trainer(plain, tmp_path / "plain", tmp_path, cache))
    ]
    assert completed[0] and completed[0] == completed[1]
    ours, theirs = trainer.model.state_dict(), before.weights
    for name in ("decoder.bonus.evidence.classes.weight", "decoder.bonus.evidence.classes.bias"):
        assert torch.equal(ours[name][:CLASSES], theirs[name].float())
    # The evidence of a word that had some is as strong as it was.
    strength = "decoder.bonus.evidence.scale", "decoder.bonus.evidence.column"
    (our_scale, our_column), (scale, column) = ([own[n] for n in strength] for own in (ours, theirs))
    named = (column < len(scale)).nonzero().flatten()
    assert torch.equal(our_scale[our_column[named]], scale[column[named]].float())
    number = trainer.vocabulary.words.index("octopus")
    assert our_scale[our_column[number]] == scale.float().median()


def test_what_cannot_be_fitted_is_refused(data: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="need photos with captions"):
        squares.trainer(options(0, data=(LABELLED,)), tmp_path, data, cache)
    with pytest.raises(DataError, match="fitted before a stage with tuned_segments = 0"):
        options(0, 1)
    with pytest.raises(DataError, match="the run chooses them"):
        named = squares.with_bonus(MODEL, label_classes=("octopus",))
        squares.trainer(options(0, model=named), tmp_path, data, cache)
    with pytest.raises(DataError, match=r"need \[model.bonus\] classes"):
        options(0, model=ModelOptions())
