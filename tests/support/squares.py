"""A data set that is learnt in seconds: coloured squares at the left or the right."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.model import ModelOptions
from captioner.options import CaptionOptions
from captioner.training.config.train_options import SourceOptions, StageOptions, TrainOptions
from captioner.training.loop.trainer import Trainer
from captioner.training.progress import Progress
from captioner.words.imagenet import CLASSES
from support import tiny_cnn

COLORS = {"red": (230, 30, 30), "green": (30, 200, 60), "blue": (40, 60, 230)}
SIDES = ("left", "right")
SIZE = 32
CLASSIFYING = ModelOptions(
    encoder="efficientnet_lite0",
    image_size=SIZE,
    stride=16,
    features=16,
    attention_hidden=8,
    hidden=16,
    embedding=16,
    decoder="two_lstm",
    attention="scaled_dot_product",
    bonus=BonusOptions(classes=CLASSES),
)
"""A small model with class evidence, which needs a pretrained encoder."""


def with_bonus(model: ModelOptions, **changes: Any) -> ModelOptions:
    return dataclasses.replace(model, bonus=dataclasses.replace(model.bonus, **changes))


def noise(folder: Path, number: int) -> list[Path]:
    """Pictures that are all different, of five coarse cells a side."""
    random = np.random.default_rng(0)
    paths = [folder / f"{index}.png" for index in range(number)]
    for path in paths:
        small = random.integers(0, 256, (5, 5, 3), dtype=np.uint8)
        Image.fromarray(small).resize((SIZE, SIZE)).save(path)
    return paths


def draw(color: str, side: str, number: int) -> Image.Image:
    """A square that lies a little elsewhere in each picture."""
    random = np.random.default_rng(number)
    picture = np.full((SIZE, SIZE, 3), 110, dtype=np.uint8)
    top, left = random.integers(2, 18), random.integers(0, 5) + (17 if side == "right" else 0)
    picture[top : top + 11, left : left + 11] = COLORS[color]
    return Image.fromarray(picture)


def captions(color: str, side: str) -> list[str]:
    return [
        f"a {color} square on the {side}",
        f"the {color} square is on the {side}",
        f"a square that is {color}",
        f"on the {side} is a {color} square",
        f"a {color} square",
    ]


def write(folder: Path) -> Path:
    """24 images for training and 6 for validation, and a Karpathy file of them; returns that."""
    (folder / "images").mkdir(parents=True)
    images = []
    for number in range(30):
        color, side = list(COLORS)[number % 3], SIDES[number // 3 % 2]
        name = f"{number:02}.png"
        draw(color, side, number).save(folder / "images" / name)
        sentences = [{"raw": text} for text in captions(color, side)]
        images.append({"filename": name, "split": "train" if number < 24 else "val", "sentences": sentences})
    path = folder / "captions.json"
    path.write_text(json.dumps({"images": images}))
    return path


def options(stages: tuple[StageOptions, ...] = (), **changes: Any) -> TrainOptions:
    """A run over `write`'s data, relative to its folder."""
    values: dict[str, Any] = {
        "name": "squares",
        "model": ModelOptions(
            encoder=tiny_cnn.NAME,
            image_size=SIZE,
            stride=8,
            features=24,
            attention_hidden=16,
            hidden=32,
            embedding=24,
            dropout=0.1,
        ),
        "data": (SourceOptions(name="squares", captions="captions.json", images=("images",)),),
        "stages": stages or (stage(),),
        "weights": "random",
        "min_count": 1,
        "search": CaptionOptions(max_words=8),
        "ema_decay": 0.9,
    }
    return TrainOptions(**(values | changes))


def stage(**changes: Any) -> StageOptions:
    """All of the network is trained, so that what is cached is the pixels and no graph need be exported."""
    values: dict[str, Any] = {
        "name": "words",
        "epochs": 2,
        "batch_captions": 20,
        "learning_rate": 1e-2,
        "encoder_learning_rate": 3e-3,
        "warmup_steps": 3,
        "tuned_segments": 3,
    }
    return StageOptions(**(values | changes))


TWO_STAGES = (
    stage(name="words", epochs=1, tuned_segments=1),
    stage(name="sight", epochs=2, learning_rate=3e-3, hidden_features=0.1, zoom=0.9),
)


def trainer(options: TrainOptions, folder: Path, data: Path, cache: Path, **changes: Any) -> Trainer:
    """On the CPU, without a word."""
    changes = {"progress": Silent(), **changes}
    return Trainer(options, folder, data, cache, torch.device("cpu"), **changes)


def adding(bonus: BonusOptions, folder: Path, data: Path, cache: Path) -> Trainer:
    """A run in `folder`/more that adds bonuses to a model which was trained without them."""
    trainer(options((stage(epochs=1),)), folder / "run", data, cache).run()
    for name in ("captions.json", "images"):
        (folder / name).symlink_to(data / name)
    more = options((stage(epochs=1),), start="run/best.pt", model=ModelOptions(bonus=bonus))
    return trainer(more, folder / "more", folder, cache)


class Silent(Progress):
    """Keeps what was noted."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)
