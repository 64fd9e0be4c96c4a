"""The mean of several runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from support import squares

from captioner.cli.main import main
from captioner.model.vocabulary import SPECIAL
from captioner.nn.model import CaptionModel
from captioner.training.config.train_options import TrainOptions
from captioner.training.weights import checkpoint


def write(
    path: Path, seed: int, options: TrainOptions, words: tuple[str, ...] = ("a", "square")
) -> CaptionModel:
    torch.manual_seed(seed)
    model = CaptionModel(options.model, len(SPECIAL) + len(words))
    for value in model.state_dict().values():
        if not value.is_floating_point():
            value.fill_(3001)  # half precision would round it
    values = {
        "options": options.to_dict(),
        "vocabulary": [*SPECIAL, *words],
        "model": model.state_dict(),
        "confidence": {"slope": float(seed), "intercept": 0.5, "event": "is good"},
    }
    checkpoint.save(path, values)
    return model


def test_a_checkpoint_named_twice_counts_twice(tmp_path: Path) -> None:
    options = squares.options()
    one, two = (write(tmp_path / f"{seed}.pt", seed, options) for seed in (1, 2))
    paths = [str(tmp_path / name) for name in ("1.pt", "2.pt", "1.pt")]
    assert main(["average", *paths, "-o", str(tmp_path / "new" / "mean.pt")]) == 0
    mean, vocabulary, again, rest = checkpoint.load_model(tmp_path / "new" / "mean.pt")
    assert rest["confidence"]["slope"] == 1.0  # that of the first
    assert vocabulary.words == (*SPECIAL, "a", "square")
    assert again == options
    for name, value in mean.state_dict().items():
        expected = (2 * one.state_dict()[name] + two.state_dict()[name]) / 3
        if not value.is_floating_point():
            assert (value == 3001).all()
        torch.testing.assert_close(value.float(), expected.float(), atol=1e-3, rtol=1e-3)


def test_models_that_differ_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = squares.options()
    write(tmp_path / "one.pt", 1, options)
    write(tmp_path / "words.pt", 1, options, ("a", "circle"))
    small = dataclasses.replace(options, model=dataclasses.replace(options.model, hidden=16))
    write(tmp_path / "small.pt", 1, small)
    for other in ("words.pt", "small.pt", "missing.pt"):
        arguments = ["average", str(tmp_path / "one.pt"), str(tmp_path / other)]
        assert main([*arguments, "-o", str(tmp_path / "mean.pt")]) == 2
        assert other in capsys.readouterr().err
        assert not (tmp_path / "mean.pt").exists()
    assert main(["average", str(tmp_path / "one.pt"), "-o", str(tmp_path / "words.pt")]) == 2
    assert "exists already" in capsys.readouterr().err
