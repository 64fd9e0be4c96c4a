"""Graphs tell how sure the model is of what a photo shows, and confidence depends on it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares

from captioner import Caption, Captioner
from captioner.export.bundle import export_bundle
from captioner.model.bundle import change_manifest
from captioner.model.vocabulary import SPECIAL
from captioner.nn.encoder import STRIDES
from captioner.nn.model import CaptionModel
from captioner.training.weights import checkpoint

WORDS = [*SPECIAL, *(f"word{number}" for number in range(20))]


def exported(folder: Path, classes: int, photos: Sequence[Path] = ()) -> tuple[CaptionModel, Path]:
    """A network whose classes are certain of some photos, and its bundle."""
    torch.manual_seed(0)
    options = squares.options()
    changed = squares.with_bonus(options.model, classes=classes, named_words=2 if classes else 0)
    options = dataclasses.replace(options, model=changed)
    model = CaptionModel(options.model, len(WORDS)).eval()
    if model.evidence is not None:
        with torch.no_grad():
            model.evidence.classes.weight.mul_(2000)
    contents = {"options": options.to_dict(), "vocabulary": WORDS, "model": model.state_dict()}
    checkpoint.save(folder / "model.pt", contents)
    export_bundle(folder / "model.pt", folder / "bundle", int8_photos=photos)
    return model, folder / "bundle"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return squares.noise(tmp_path_factory.mktemp("photos"), 9)


@pytest.fixture(scope="module")
def model(photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[CaptionModel, Path]:
    return exported(tmp_path_factory.mktemp("model"), 100, photos)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_graphs_and_network_are_equally_certain(
    model: tuple[CaptionModel, Path], photos: list[Path], precision: str
) -> None:
    network, folder = model
    captioner = Captioner.load(folder, device="cpu", precision=precision)
    pixels = np.stack([captioner.preprocess(photo) for photo in photos])
    found = captioner.encode(pixels).certainty
    with torch.inference_mode():
        outputs = network.encoder.outputs(network.encoder.inputs(torch.from_numpy(pixels)), 0, len(STRIDES))
        wanted = network.certainty(outputs)
    assert wanted is not None and wanted.lt(0).all() and wanted.std() > 0.01
    np.testing.assert_allclose(found, wanted.numpy(), atol=0.01 if precision == "float32" else 0.5)


def test_captions_of_what_is_not_known_have_less_confidence(
    model: tuple[CaptionModel, Path], photos: list[Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(model[1], tmp_path / "bundle")
    curve = {"slope": 1.0, "intercept": 0.0, "event": "good"}
    steep = {"slope": 1.0, "intercept": 5.0}
    change_manifest(folder, {"confidence": {**curve, "with_certainty": steep}})
    captioner = Captioner.load(folder, device="cpu")
    calibration = captioner.calibration
    assert calibration is not None and calibration.with_certainty == (1.0, 5.0)
    [certainty] = captioner.encode(captioner.preprocess(photos[0])[None]).certainty
    assert certainty is not None
    *_, streamed = captioner.stream(photos[0])
    for caption in (captioner.caption(photos[0]), streamed):
        assert isinstance(caption, Caption) and caption.confidence
        assert caption.confidence == calibration.confidence(caption.text, caption.log_prob, certainty)
        assert caption.confidence > calibration.confidence(caption.text, caption.log_prob, certainty - 1)


def test_models_without_classes_tell_nothing(photos: list[Path], tmp_path: Path) -> None:
    _, folder = exported(tmp_path, 0)
    captioner = Captioner.load(folder, device="cpu")
    assert captioner.encode(captioner.preprocess(photos[0])[None]).certainty == [None]
