"""Configurations, checkpoints and bundles of earlier versions are still read."""

from __future__ import annotations

from typing import Any

import pytest

from captioner.errors import DataError
from captioner.model.bundle import Bundle
from captioner.nn.decoder.bonus import BonusOptions
from captioner.options import CaptionOptions
from captioner.training.config.train_options import DEFAULT_OBJECTIVES, TrainOptions


def read(stage: dict[str, Any], **run: Any) -> TrainOptions:
    data = [{"name": "a", "captions": "a.json", "images": ["a"]}]
    return TrainOptions.from_dict({"name": "r", "data": data, "stages": [{"name": "s", **stage}], **run})


def objectives(stage: dict[str, Any], **run: Any) -> dict[str, Any]:
    [read_stage] = read(stage, **run).to_dict()["stages"]
    return read_stage["objectives"]


def test_options_of_objectives_were_options_of_the_stage() -> None:
    found = objectives({"label_smoothing": 0.0, "doubly_stochastic": 0, "word_detection": 0.2})
    assert found == {
        "cross_entropy": {"weight": 1.0, "label_smoothing": 0.0, "as_searched": False},
        "hard_attention": {"weight": 1.0, "reward": 0.1, "entropy": 0.01},
        "bag_of_words": {"weight": 0.2},
    }
    found = objectives({"objective": "self_critical", "samples": 10, "doubly_stochastic": 0.1})
    assert list(found) == ["self_critical"] and found["self_critical"]["samples"] == 10


def test_rewards_were_options_of_their_objective() -> None:
    flat = {"samples": 8, "objects": 0.35, "naming": 1.0}
    assert objectives({"objectives": {"self_critical": flat}}) == objectives(
        {"objectives": {"self_critical": {"samples": 8, "rewards": {"objects": 0.35, "naming": 1}}}}
    )


def test_bonuses_were_options_of_the_model() -> None:
    """As `--set model.checklist_weight=1` does."""
    flat = {"decoder": "two_lstm", "checklist_weight": 1.0, "classes": 5, "bonus": {"classes": 4}}
    assert read({}, model=flat).model.bonus == BonusOptions(checklist_weight=1.0, classes=5)


def test_networks_to_learn_from_were_options_of_the_run() -> None:
    found = objectives({"hints": 3.0}, hint_network="clip.onnx", hint_normalization="clip")
    assert found["feature_distillation"] == {"weight": 3.0, "network": "clip.onnx", "normalization": "clip"}
    found = objectives({"distillation": 0.25}, teachers=["a", "b"])
    expected = {"weight": 0.25, "teachers": ("a", "b"), "grid": 0.0, "classes": 0.0}
    assert found["distillation"] == expected
    assert found["cross_entropy"]["weight"] == 0.75


def test_the_search_was_options_of_the_run() -> None:
    """As `--set beam_size=5` does. In checkpoints -1 stood for what was left open."""
    found = read({}, beam_size=5, no_repeat_ngram=-1, search={"beam_size": 2, "max_words": 9})
    assert found.search == CaptionOptions(beam_size=5, max_words=9)


def test_a_stage_without_objectives_has_the_defaults() -> None:
    assert objectives({}) == {}  # until the data are known
    assert list(objectives({"objective": "cross_entropy"})) == list(DEFAULT_OBJECTIVES)


def test_old_names_change_a_stage_with_todays() -> None:
    """As `--set stages.0.word_detection=0.5` does."""
    found = objectives({"objectives": {"cross_entropy": 1.0, "bag_of_words": 0.2}, "word_detection": 0.5})
    assert found["bag_of_words"]["weight"] == 0.5 and list(found) == ["cross_entropy", "bag_of_words"]


def test_what_is_written_is_read_back() -> None:
    options = read({"hints": 1.0, "word_detection": 0.3}, hint_network="clip.onnx")
    assert TrainOptions.from_dict(options.to_dict()) == options


def test_the_options_in_the_embedded_bundle_are_read() -> None:
    options = TrainOptions.from_dict(Bundle.load().manifest["training"])
    assert TrainOptions.from_dict(options.to_dict()) == options
    assert all(stage.objectives for stage in options.stages)


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ({"magic": 1.0}, "magic: unknown objective; there is cross_entropy, "),
        ({"cross_entropy": {"magic": 1.0}}, "cross_entropy.magic: unknown option"),
        ({"cross_entropy": -1}, "cross_entropy: weight must be at least 0"),
        ({"cross_entropy": "much"}, "cross_entropy.weight: expected a number, got 'much'"),
        ({"cross_entropy": {"label_smoothing": 1.0}}, "cross_entropy: label_smoothing must be"),
        ({"cross_entropy": 0}, "none has a weight above 0"),
        ("cross_entropy", "expected a table, got 'cross_entropy'"),
    ],
)
def test_wrong_objectives_are_rejected(objectives: Any, message: str) -> None:
    with pytest.raises(DataError, match=rf"^stages\[0\]\.objectives[.:] ?{message}"):
        read({"objectives": objectives})


def test_an_unknown_old_objective_is_rejected() -> None:
    with pytest.raises(DataError, match=r"stages\[0\].objectives.magic: unknown objective"):
        read({"objective": "magic"})
