"""Photos that are missing or damaged: all are named, few are left out, many end the run."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from support import squares

from captioner.errors import DataError


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
        here = trainer.cache.maps(torch.tensor([row]), torch.tensor([0]), trainer.device)
        there = whole.cache.maps(torch.tensor([names.index(left[row])]), torch.tensor([0]), whole.device)
        assert torch.equal(here[0], there[0])
    again = squares.trainer(options, tmp_path / "again", spoilt, cache)  # from the stored features
    assert [example.image.name for example in again.train_examples] == left
    trainer.run()
    resumed = squares.trainer(options, tmp_path / "run", spoilt, cache)
    assert any(note.startswith("resuming from") for note in resumed.progress.notes)


def test_too_many_end_the_run_and_all_are_named(spoilt: Path, cache: Path, tmp_path: Path) -> None:
    progress = squares.Silent()
    options = dataclasses.replace(squares.options(), damaged_share=0.1)
    with pytest.raises(DataError, match=r"3 of 24 photos are missing or damaged, more than damaged_share"):
        squares.trainer(options, tmp_path / "run", spoilt, cache, progress=progress)
    assert sum(note.startswith("left out") for note in progress.notes) == 3
