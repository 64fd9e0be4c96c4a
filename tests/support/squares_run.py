"""`captioner train` on coloured squares: a data set, and a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.cli.main import main

CONFIG = """
name = "squares"
weights = "random"
min_count = 1
ema_decay = 0.9

[search]
max_words = 8

[model]
encoder = "tiny_cnn"
image_size = 32
stride = 8
features = 24
attention_hidden = 16
hidden = 32
embedding = 24

[[data]]
name = "squares"
captions = "captions.json"
images = ["images"]

[[stages]]
name = "words"
epochs = 1
batch_captions = 20
learning_rate = 1e-2
encoder_learning_rate = 3e-3
warmup_steps = 3
tuned_segments = 3
"""


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support import squares  # which loads PyTorch

    folder = tmp_path_factory.mktemp("squares")
    squares.write(folder)
    (folder / "squares.toml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="session")
def run(data: Path) -> Path:
    """The folder of a finished run."""
    folder = data / "run"
    assert train(data, folder) == 0
    return folder


def train(data: Path, folder: Path, *arguments: str, config: str = "squares.toml") -> int:
    place = ["--cache", str(data / "cache"), "--device", "cpu", "--threads", "1"]
    return main(["train", str(data / config), "-o", str(folder), *place, *arguments])


def told(capsys: pytest.CaptureFixture[str]) -> str:
    output, errors = capsys.readouterr()
    assert output == ""
    return errors
