"""Photos that are missing or damaged: all are named, few are left out, many end the run."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from support import squares

from captioner.errors import DataError
from captioner.training.config.train_options import SourceOptions


@pytest.fixture
def spoilt(data: Path, tmp_path: Path) -> Path:
    """The data with two damaged photos and a missing one for training."""
    shutil.copytree(data, tmp_path / "data")
    images = tmp_path / "data" / "images"
    (images / "03.png").write_bytes((images / "03.png").read_bytes()[:60])
    (images / "07.png").write_bytes(b"no photo")
    (images / "11.png").unlink()
    return tmp_path / "data"


def test_few_are_named_and_left_out(spoilt: Path, data: Path, cache: Path, tmp_path: Path) -> None:
    options = squares.options(damaged_share=0.2)
    trainer = squares.trainer(options, tmp_path / "run", spoilt, cache)
    notes = [note for note in trainer.progress.notes if note.startswith("left out")]
    assert [note.split(":")[1] for note in notes] == [f" squares/{n}.png" for n in ("11", "03", "07")]
    left = [example.image.name for example in trainer.train_examples]
    assert len(left) == 21 and {"03.png", "07.png", "11.png"}.isdisjoint(left)
    whole = squares.trainer(squares.options(), tmp_path / "whole", data, cache)
    names = [example.image.name for example in whole.train_examples]
    for row in (0, 5, 20):
        here = trainer.features.maps(torch.tensor([row]), torch.tensor([0]), trainer.device)
        there = whole.features.maps(torch.tensor([names.index(left[row])]), torch.tensor([0]), whole.device)
        assert torch.equal(here[0], there[0])
    again = squares.trainer(options, tmp_path / "again", spoilt, cache)  # from the stored features
    assert [example.image.name for example in again.train_examples] == left
    trainer.run()
    resumed = squares.trainer(options, tmp_path / "run", spoilt, cache)
    assert any(note.startswith("resuming from") for note in resumed.progress.notes)


def test_too_many_end_the_run_and_all_are_named(spoilt: Path, cache: Path, tmp_path: Path) -> None:
    progress = squares.Silent()
    options = dataclasses.replace(squares.options(), damaged_share=0.09)
    with pytest.raises(DataError, match=r"3 of 30 photos are missing or damaged, more than damaged_share"):
        squares.trainer(options, tmp_path / "run", spoilt, cache, progress=progress)
    assert sum(note.startswith("left out") for note in progress.notes) == 3


def test_photos_of_all_splits_count_together(
    spoilt: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spoilt / "images" / "25.png").unlink()
    squares.trainer(squares.options(damaged_share=0.14), tmp_path / "run", spoilt, cache)  # 1 of 6, 3 of 24
    for name in range(0, 10, 2):
        (spoilt / "images" / f"{name:02}.png").unlink()
    monkeypatch.setattr("captioner.training.loop.prepare.build_cache", None)  # no features are computed
    progress = squares.Silent()
    with pytest.raises(DataError, match="7 of 30 photos are missing"):
        squares.trainer(
            squares.options(damaged_share=0.2), tmp_path / "new", spoilt, cache, progress=progress
        )


def test_a_photo_has_one_name(spoilt: Path, cache: Path, tmp_path: Path) -> None:
    captions = [{"image": f"{place}/00.png", "caption": "a square"} for place in ("cats", "dogs")]
    (spoilt / "two.jsonl").write_text("".join(json.dumps(line) + "\n" for line in captions))
    source = SourceOptions(name="two", captions="two.jsonl", images=("images",), val_fraction=0.5)
    with pytest.raises(DataError, match=r"two: cats/00\.png and dogs/00\.png are one photo"):
        squares.trainer(squares.options(data=(source,)), tmp_path / "run", spoilt, cache)
