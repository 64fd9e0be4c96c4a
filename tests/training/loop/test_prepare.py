"""What a run computes before it trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares

from captioner.errors import ImageError
from captioner.training.data.examples import Example
from captioner.training.data.frozen_part import FrozenPart, Network


def test_photos_to_validate_on_are_not_mirrored_and_the_network_is_made_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[str, int] = {}
    views = FrozenPart.views

    def watch(self: FrozenPart, example: Example) -> np.ndarray | ImageError:
        found = views(self, example)
        assert isinstance(found, np.ndarray)
        counts[example.key] = len(found)
        return found

    made: list[torch.device] = []
    on = FrozenPart.on

    def make(self: FrozenPart, device: torch.device) -> Network:
        made.append(device)
        return on(self, device)

    monkeypatch.setattr(FrozenPart, "views", watch)
    monkeypatch.setattr(FrozenPart, "on", make)
    trainer = squares.trainer(
        squares.options((squares.stage(epochs=1),), crops=1), tmp_path / "run", data, tmp_path / "cache"
    )
    assert {counts[example.key] for example in trainer.train_examples} == {4}
    assert {counts[example.key] for example in trainer.val_examples} == {1}
    assert len(made) == 1
    trainer.run()
