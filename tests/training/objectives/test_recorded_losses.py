"""Losses of the first steps, recorded before objectives had files of their own, from options under old names.

Refactoring the objectives must change neither the numbers nor what old configurations mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import squares

from captioner.training.config.train_options import TrainOptions

LIKELIHOOD = {"doubly_stochastic": 0.3, "attention_entropy": 0.2, "word_detection": 0.5}
REWARD = {"objective": "self_critical", "samples": 4, "temperature": 0.8, "contrast": 0.3}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[float]]] = {
    "plain": ({}, {}, [2.819871, 2.569546]),
    "terms": (LIKELIHOOD, {}, [4.825052, 4.48891]),
    "smoothing": (
        {"label_smoothing": 0.0, "hidden_features": 0.2, "hidden_cells": 0.1},
        {},
        [2.823708, 2.554072],
    ),
    "hints": ({"hints": 2.0, "zoom": 0.6}, {"hint_network": "hints.onnx", "crops": 1}, [4.539913, 4.280312]),
    "teacher": ({"distillation": 0.4}, {"teachers": ["teacher/best.pt"]}, [2.812038, 2.585288]),
    "hard": ({"hard_reward": 0.5, "hard_entropy": 0.2}, {"model.attention": "hard"}, [2.267941, 2.195606]),
    "reward": (REWARD, {}, [0.152838, 0.167773]),
    "reward_with_hints": ({**REWARD, "hints": 1.0}, {"hint_network": "hints.onnx"}, [1.078474, 0.810003]),
    "checklist": (REWARD, {"model.checklist_weight": 0.2}, [0.199225, 0.001433]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    squares.write(folder)
    weights = np.random.default_rng(0).normal(size=(3, 3, 4, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["pixels", "weights"], ["cells"], strides=[4, 4])],
        "hints",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("cells", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [onnx.numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "hints.onnx")
    squares.trainer(squares.options(seed=5), folder / "teacher", folder, cache).run()
    return folder


def options(stage: dict[str, Any], run: dict[str, Any]) -> TrainOptions:
    """Options of two steps, from the tables of a configuration under the old names."""
    values = {
        "name": "recorded",
        "seed": 1,
        "weights": "random",
        "min_count": 1,
        "max_words": 8,
        "ema_decay": 0.9,
        "model": {
            "encoder": squares.options().model.encoder,
            "image_size": squares.SIZE,
            "stride": 8,
            "features": 24,
            "attention_hidden": 16,
            "hidden": 32,
            "embedding": 24,
            "dropout": 0.1,
        },
        "data": [{"name": "squares", "captions": "captions.json", "images": ["images"], "val": ""}],
        "stages": [
            {
                "name": "words",
                "epochs": 2,
                "batch_captions": 1000,
                "learning_rate": 1e-2,
                "encoder_learning_rate": 3e-3,
                "warmup_steps": 1,
                "tuned_segments": 3,
                **stage,
            }
        ],
    }
    for name, value in run.items():
        place, _, last = name.rpartition(".")
        (values[place] if place else values)[last] = value
    return TrainOptions.from_dict(values)


@pytest.mark.parametrize("case", CASES)
def test_the_first_losses_are_those_recorded(case: str, folder: Path, cache: Path, tmp_path: Path) -> None:
    stage, run, recorded = CASES[case]
    history = squares.trainer(options(stage, run), tmp_path, folder, cache).run()
    assert [record["loss"] for record in history] == pytest.approx(recorded, rel=2e-4, abs=1e-6)
