"""A bundle says what the network says."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support import power, squares

from captioner.captioner import Captioner
from captioner.errors import DataError
from captioner.export.bundle import export_bundle
from captioner.export.card import TABLE
from captioner.export.parity import ParityError, check_parity
from captioner.export.release import measure
from captioner.metrics import evaluate_captions
from captioner.model.bundle import Bundle
from captioner.model.search import search
from captioner.model.vocabulary import SPECIAL
from captioner.nn.model import CaptionModel
from captioner.nn.stepper import TorchStepper
from captioner.options import CaptionOptions
from captioner.references import read_references
from captioner.training.weights import checkpoint

WORDS = [*SPECIAL, *["a", "the", "red", "green", "blue", "square", "on", "is", "left", "right", "that"]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a network that knows nothing, but is sure of it."""
    torch.manual_seed(0)
    options = squares.options()
    model_options = squares.with_bonus(
        dataclasses.replace(options.model, decoder="two_lstm"), attended_detection=0.5
    )
    options = dataclasses.replace(options, model=model_options)
    model = CaptionModel(options.model, len(WORDS))
    with torch.no_grad():
        model.decoder.embedding.weight.mul_(4)
        model.decoder.embedding.bias[2] += 1
    path = tmp_path_factory.mktemp("run") / "best.pt"
    checkpoint.save(
        path,
        {
            "options": options.to_dict(),
            "vocabulary": WORDS,
            "model": model.state_dict(),
            "scores": {"squares": {"cider": 12.34, "bleu_4": 5.0, "rouge_l": 6.0}},
        },
    )
    return path


def network(saved: Path) -> CaptionModel:
    """With its weights as a bundle stores them."""
    model, *_ = checkpoint.load_model(saved)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half().float())
    return model


@pytest.fixture(scope="module")
def exported(saved: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "deep" / "bundle"
    photos = sorted((data / "images").iterdir())[:5]
    with power.watched() as disk:
        parity = export_bundle(saved, folder, name="squares", images=photos)
    assert disk.published[-1] == "bundle" and "bundle" not in disk.lost
    assert parity.captions == len(photos)
    assert parity.log_prob < 1e-4 and parity.attention < 1e-5
    assert [path.name for path in folder.parent.iterdir()] == ["bundle"]  # nothing is left beside it
    return folder


def test_a_bundle_is_complete(exported: Path) -> None:
    bundle = Bundle.load(exported)
    assert (bundle.name, bundle.image_size, bundle.grid) == ("squares", squares.SIZE, (4, 4))
    assert bundle.vocabulary.words == tuple(WORDS)
    assert bundle.decoding.beam_size == 3 and bundle.decoding.max_words == 8
    assert bundle.language is None  # its words are too few to tell
    manifest = json.loads((exported / "bundle.json").read_text())
    assert manifest["training"]["model"]["decoder"] == "two_lstm"
    assert manifest["scores"]["squares"]["cider"] == 12.34
    card = (exported / "MODEL_CARD.md").read_text()
    assert card.startswith("# squares\n") and "| squares | 12.3 | 5.0 | 6.0 |" in card and TABLE not in card


def test_a_bundle_does_not_tell_where_its_author_keeps_files(saved: Path, tmp_path: Path) -> None:
    contents = checkpoint.load(saved)
    source = {
        **contents["options"]["data"][0],
        "captions": "/home/ada/captions.csv",
        "images": ["~/b/photos"],
    }
    options = {**contents["options"], "data": [source], "start": "default"}
    checkpoint.save(tmp_path / "home.pt", {**contents, "options": options})
    export_bundle(tmp_path / "home.pt", tmp_path / "bundle")
    [told] = Bundle.load(tmp_path / "bundle").manifest["training"]["data"]
    assert (told["captions"], told["images"]) == ("captions.csv", ["photos"])
    card = (tmp_path / "bundle" / "MODEL_CARD.md").read_text()
    assert "- squares (captions.csv)" in card
    assert "from the model default, whose terms of use hold for it too: research and evaluation only." in card


@pytest.fixture
def english(saved: Path, tmp_path: Path) -> Path:
    """The same checkpoint, which knows all articles."""
    words = ["an" if word == "that" else word for word in WORDS]
    checkpoint.save(tmp_path / "english.pt", {**checkpoint.load(saved), "vocabulary": words})
    return tmp_path / "english.pt"


def test_a_release_is_measured_with_the_bundle(english: Path, data: Path, tmp_path: Path) -> None:
    card = f"# squares\n\n{TABLE}\n\nKnows squares.\n"
    export_bundle(
        english, tmp_path / "bundle", card=card, decoding=CaptionOptions(beam_size=2), evaluate=data
    )
    images = read_references(data / "captions.json", "val")
    captioner = Captioner.load(tmp_path / "bundle", device="cpu")
    assert captioner.bundle.language == "en"
    captions = captioner.caption([data / "images" / image.name for image in images])
    scores = evaluate_captions(
        {image.key: caption.text for image, caption in zip(images, captions, strict=True)},
        {image.key: image.captions for image in images},
        meteor=False,
    )
    recorded = captioner.bundle.manifest["scores"]["squares"]
    assert recorded["images"] == len(images)
    assert recorded["cider"] == pytest.approx(100 * scores.values["cider"], abs=1e-3)
    text = (tmp_path / "bundle" / "MODEL_CARD.md").read_text()
    assert text.startswith("# squares\n\n|  | squares |\n") and text.endswith("Knows squares.\n")
    assert f"| images | {len(images)} |" in text and "| CIDEr-D | " in text


def test_validation_photos_that_cannot_be_read_are_left_out(
    exported: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(data, tmp_path / "data")
    images, captioner = tmp_path / "data" / "images", Captioner.load(exported, device="cpu")
    (images / "25.png").unlink()
    (images / "27.png").write_bytes(b"no photo")
    release = measure(captioner, squares.options().data, tmp_path / "data")
    assert release.scores["squares"]["images"] == 4
    assert [line.split(":")[1] for line in caplog.messages] == [" squares/25.png", " squares/27.png"]
    shutil.rmtree(images)
    images.mkdir()
    with pytest.raises(DataError, match=r"no validation image can be read, for instance squares/24\.png"):
        measure(captioner, squares.options().data, tmp_path / "data")


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_captions_words_and_maps_are_those_of_the_network(saved: Path, exported: Path, batch: int) -> None:
    captioner = Captioner.load(exported, device="cpu", threads=1)
    model = network(saved)
    pixels = np.random.default_rng(batch).integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8)
    with torch.inference_mode():
        stepper = TorchStepper(model.decoder, *model.encode(torch.from_numpy(pixels)))
        expected = search(stepper, batch, captioner.defaults)
    for caption, [best] in zip(captioner.caption_pixels(pixels), expected, strict=True):
        assert [w.text for w in caption.words] == [WORDS[token] for token in best.tokens]
        assert caption.log_prob == pytest.approx(best.log_prob, abs=1e-3)
        for word, log_prob, looked in zip(caption.words, best.log_probs, best.attention, strict=False):
            assert word.log_prob == pytest.approx(log_prob, abs=1e-3)
            assert word.attention is not None
            np.testing.assert_allclose(word.attention.ravel(), looked, atol=1e-4)


def test_a_bundle_can_be_given_a_checklist(saved: Path, exported: Path, tmp_path: Path) -> None:
    """Which changes captions, in ONNX as in PyTorch, and no weight."""
    export_bundle(saved, tmp_path / "bundle", checklist_weight=0.5)
    captioner = Captioner.load(tmp_path / "bundle", device="cpu", threads=1)
    assert captioner.bundle.manifest["training"]["model"]["bonus"]["checklist_weight"] == 0.5
    model = network(saved)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    plain = [c.text for c in Captioner.load(exported, device="cpu", threads=1).caption_pixels(pixels)]
    assert [c.text for c in captioner.caption_pixels(pixels)] != plain
    model.change_bonus(dataclasses.replace(model.options.bonus, checklist_weight=0.5))
    check_parity(model, captioner)
    model.change_bonus(dataclasses.replace(model.options.bonus, checklist_weight=0.4))
    with pytest.raises(ParityError):
        check_parity(model, captioner)


@pytest.mark.parametrize("part", ["decoder.embedding.bias", "decoder.gate.weight", "encoder.norm.weight"])
def test_graphs_of_other_weights_are_noticed(saved: Path, exported: Path, part: str) -> None:
    model = network(saved)
    captioner = Captioner.load(exported, device="cpu", threads=1)
    check_parity(model, captioner)
    with torch.no_grad():
        value = model.get_parameter(part)
        value.add_(torch.linspace(0, 0.3, value.numel()).view_as(value))
    with pytest.raises(ParityError):
        check_parity(model, captioner)


def test_a_bundle_can_avoid_phrases(saved: Path, tmp_path: Path) -> None:
    phrase = " ".join(WORDS[4:6])
    export_bundle(saved, tmp_path / "bundle", avoided=[phrase])
    assert Bundle.load(tmp_path / "bundle").avoided == ((4, 5),)
    with pytest.raises(DataError, match="words of the vocabulary, got 'a gryphon'"):
        export_bundle(saved, tmp_path / "other", avoided=["a gryphon"])
    assert not (tmp_path / "other").exists()


def test_a_model_that_has_diverged_is_not_exported(saved: Path, tmp_path: Path) -> None:
    contents = checkpoint.load(saved)
    contents["model"] = {name: 1e10 * value for name, value in contents["model"].items()}
    checkpoint.save(tmp_path / "last.pt", contents)
    with pytest.raises(DataError, match="the model captions no image: its training has diverged"):
        export_bundle(tmp_path / "last.pt", tmp_path / "bundle")
    assert [path.name for path in tmp_path.iterdir()] == ["last.pt"]


@pytest.mark.parametrize("name", ["x" * 101, "x\ny"])
def test_a_name_that_a_bundle_cannot_have_is_refused_at_once(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr("captioner.export.bundle._write_graphs")
    with pytest.raises(DataError, match=r"^name is empty, longer than 100 characters, or has control char"):
        export_bundle(saved, tmp_path / "bundle", name=name)
    assert not any(tmp_path.iterdir())


def test_a_folder_that_exists_is_not_written_over(saved: Path, exported: Path) -> None:
    before = (exported / "bundle.json").read_bytes()
    with pytest.raises(DataError, match="exists already"):
        export_bundle(saved, exported)
    assert (exported / "bundle.json").read_bytes() == before
