"""Labelled photos keep the captions that the run started with, and what is detected can be frozen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.training.config.train_options import SourceOptions, StageOptions, TrainOptions
from captioner.training.data.batches import NAMED, PHOTOS, RETAINED
from captioner.training.loop.losses import forward

CAPTIONED = squares.options().data[0]
LABELLED = SourceOptions(name="labelled", images=("images",), labels="labels.json", val="none")
OBJECTIVES = {
    "self_critical": {"samples": 3, "temperature": 0.7},
    "caption_retention": {"weight": 2.0, "samples": 4},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A folder with captioned and labelled photos, and start.pt, a model that knows their words."""
    root = tmp_path_factory.mktemp("retention")
    squares.write(root)
    names = "\n".join(f'{{"filename": "{number:02}.png", "words": ["square"]}},' for number in range(6))
    (root / "labels.json").write_text(f'{{"images": [{names.rstrip(",")}]}}')
    first = squares.options((squares.stage(epochs=1),), data=(CAPTIONED,))
    squares.trainer(first, root / "first", root, cache).run()
    (root / "start.pt").symlink_to(root / "first" / "last.pt")
    return root


def options(start: str = "start.pt", **changes: object) -> TrainOptions:
    values = {"name": "reward", "objectives": OBJECTIVES, "epochs": 1, "frozen_detection": True} | changes
    return TrainOptions(
        name="retention",
        start=start,
        weights="random",
        min_count=1000,
        data=(CAPTIONED, LABELLED),
        stages=(StageOptions(**values),),  # type: ignore[arg-type]
    )


def test_what_is_detected_stays_and_the_rest_is_trained(root: Path, cache: Path, tmp_path: Path) -> None:
    trainer = squares.trainer(options(learning_rate=1e-3), tmp_path / "run", root, cache)
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.run()
    changed = {n for n, value in trainer.model.named_parameters() if not torch.equal(value, before[n])}
    assert {name.split(".")[1] for name in changed} >= {"lstm", "attention", "output"}
    assert not any(name.startswith(("encoder.", "decoder.embedding.", "decoder.mean.")) for name in changed)
    saved = torch.load(tmp_path / "run" / "last.pt", weights_only=True)
    assert not saved["objectives"]  # not the weights of the start


def test_the_start_loses_nothing_and_a_changed_model_does(root: Path, cache: Path, tmp_path: Path) -> None:
    trainer = squares.trainer(options(), tmp_path / "run", root, cache)
    batches = {batch.kind: batch for batch in trainer.losses.batches(0)}
    assert set(batches) == {NAMED, PHOTOS}
    rewarded, retained = trainer.losses["self_critical"], trainer.losses["caption_retention"]
    assert not rewarded.applies_to(NAMED) and retained.applies_to(NAMED) and not retained.applies_to(PHOTOS)

    def loss() -> float:
        return float(retained.loss(forward(trainer.losses.run, trainer.features, batches[NAMED])))

    with torch.no_grad():
        assert loss() == pytest.approx(0, abs=1e-4)
        trainer.model.decoder.output.weight.mul_(0.5)
        assert loss() > 0.01


def test_photos_without_labels_keep_their_captions_while_new_words_are_learnt(
    root: Path, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="caption_retention: it keeps what a trained model says"):
        options(start="")
    (root / "other.json").write_text('{"images": [{"filename": "00.png", "words": ["zebra"]}]}')
    other = SourceOptions(name="other", images=("images",), labels="other.json", val="none")
    plan = TrainOptions(
        name="retention",
        start="start.pt",
        weights="random",
        data=(other,),
        stages=(StageOptions(name="retain", objectives={"caption_retention": 1.0}, epochs=1),),
    )
    trainer = squares.trainer(plan, tmp_path / "run", root, cache)
    assert "zebra" in trainer.vocabulary.words and "zebra" not in trainer.losses.run.start.vocabulary.words
    (root / "kept.jsonl").write_text('{"image": "01.png", "caption": "a square"}\n')
    kept = SourceOptions(name="kept", images=("images",), captions="kept.jsonl", retained=True, val="none")
    trainer = squares.trainer(dataclasses.replace(plan, data=(other, kept)), tmp_path / "more", root, cache)
    batches = {batch.kind: batch for batch in trainer.losses.batches(0)}
    assert set(batches) == {NAMED, RETAINED}  # what is kept is not learnt
    loss = trainer.losses["caption_retention"].loss
    with torch.no_grad():
        step = forward(trainer.losses.run, trainer.features, batches[RETAINED])
        before = float(loss(step))
        trainer.model.decoder.embedding.bias[trainer.vocabulary.words.index("zebra")] += 9
        assert float(loss(forward(trainer.losses.run, trainer.features, batches[RETAINED]))) > before + 1


def test_frozen_detection_keeps_the_encoder() -> None:
    with pytest.raises(DataError, match="frozen_detection keeps the encoder"):
        options(tuned_segments=1)
