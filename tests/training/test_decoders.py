"""Every way to decode, from training to a bundle that says what the network says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support import squares

from captioner.captioner import Captioner
from captioner.export.bundle import export_bundle
from captioner.model.search import search
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper
from captioner.options import MAX_WORDS, CaptionOptions
from captioner.training.weights import checkpoint
from captioner.training.weights.start import Start

MODELS = {
    "up_down": {"decoder": "up_down"},
    "transformer": {"decoder": "transformer", "attention": "multi_head", "attention_heads": 4},
    "refiner": {"refiner_layers": 2, "attention_heads": 4},
}


@pytest.fixture(scope="module", params=MODELS)
def run(
    request: pytest.FixtureRequest, data: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a run in two stages, with a bundle of it beside."""
    folder = tmp_path_factory.mktemp("run")
    options = squares.options(
        (
            squares.stage(epochs=4),
            squares.stage(
                name="reward",
                objectives={"self_critical": 1.0},
                epochs=1,
                learning_rate=1e-4,
                batch_captions=30,
            ),
        ),
        ema_decay=0.0,
    )
    options = dataclasses.replace(
        options,
        model=dataclasses.replace(options.model, **MODELS[request.param]),
        data=(dataclasses.replace(options.data[0], repeat=4),),
    )
    squares.trainer(options, folder, data, cache).run()
    photos = sorted((data / "images").iterdir())[-3:]
    export_bundle(folder / "best.pt", folder / "bundle", images=photos)
    return folder


def network(run: Path) -> CaptionModel:
    model, *_ = checkpoint.load_model(run / "best.pt")
    return model


def photos(data: Path, captioner: Captioner) -> np.ndarray:
    paths = sorted((data / "images").iterdir())
    return np.stack([captioner.preprocess(path) for path in paths[-5:]])


def test_it_learns(run: Path) -> None:
    first, *_, last, _reward = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert last["loss"] < 0.75 * first["loss"]
    assert last["val"]["squares"]["cider"] > 100


@torch.inference_mode()
def test_a_beam_search_finds_the_same_in_the_bundle(run: Path, data: Path) -> None:
    captioner, model = Captioner.load(run / "bundle", device="cpu", threads=1), network(run)
    pixels = photos(data, captioner)
    options = CaptionOptions(beam_size=4, alternatives=3).resolve(captioner.defaults)
    here = TorchStepper(model.decoder, *model.encode(torch.from_numpy(pixels)))
    for ours, theirs in zip(
        search(here, len(pixels), options),
        search(captioner.encode(pixels), len(pixels), options),
        strict=True,
    ):
        assert [found.tokens for found in ours] == [found.tokens for found in theirs]
        for our, their in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(our.log_probs, their.log_probs, atol=1e-4)
            np.testing.assert_allclose(our.attention, their.attention, atol=1e-5)


@torch.inference_mode()
def test_the_longest_caption_is_the_same_in_the_bundle(run: Path, data: Path) -> None:
    captioner, model = Captioner.load(run / "bundle", device="cpu", threads=1), network(run)
    pixels = photos(data, captioner)[:2]
    here, there = (
        TorchStepper(model.decoder, *model.encode(torch.from_numpy(pixels))),
        captioner.encode(pixels),
    )
    our_state, their_state = here.start(2), there.start(2)
    for step in range(MAX_WORDS + 1):
        tokens = np.array([[step % 5 + 4, step % 7 + 4]] * 2)
        ours, our_map, our_state = here.step(tokens, our_state)
        theirs, their_map, their_state = there.step(tokens, their_state)
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
        np.testing.assert_allclose(our_map, their_map, atol=1e-5)
        parents = np.array([[1, 0], [0, 0]])
        our_state, their_state = here.reorder(our_state, parents), there.reorder(their_state, parents)


def test_training_can_go_on_from_the_bundle(run: Path) -> None:
    start, model = Start.read("bundle", run), network(run)
    again = CaptionModel(model.options, len(start.vocabulary))
    start.give(again, start.vocabulary)
    for (name, ours), theirs in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(ours.half().float(), theirs), name
