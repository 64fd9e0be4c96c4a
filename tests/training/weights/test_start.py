"""Going on from a trained model."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
import torch
from support import squares, tiny_clip, tiny_cnn

from captioner import Captioner
from captioner.errors import BundleError, DataError
from captioner.export.bundle import export_bundle
from captioner.model.bundle import Bundle, change_manifest
from captioner.model.search import search
from captioner.model.vocabulary import SPECIAL, Vocabulary
from captioner.nn.decoder.bonus import BonusOptions
from captioner.nn.encoder import build_backbone
from captioner.nn.model import CaptionModel, ModelOptions
from captioner.nn.stepper import TorchStepper
from captioner.training.config.train_options import TrainOptions
from captioner.training.loop.trainer import Trainer
from captioner.training.weights import checkpoint
from captioner.training.weights.start import Start, mix_backbone

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def trained(data: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt a little, and its bundle."""
    folder = tmp_path_factory.mktemp("trained")
    run(squares.options((squares.stage(epochs=1),)), folder / "run", data, cache)
    export_bundle(folder / "run" / "best.pt", folder / "bundle")
    return folder


def run(options: TrainOptions, folder: Path, data: Path, cache: Path) -> Trainer:
    trainer = squares.trainer(options, folder, data, cache)
    trainer.run()
    return trainer


@pytest.mark.parametrize(("decoder", "color_levels"), [("lstm", 3), ("two_lstm", 0)])
def test_a_bundle_holds_the_weights_of_its_checkpoint(
    decoder: str, color_levels: int, data: Path, cache: Path, tmp_path: Path
) -> None:
    options = squares.options((squares.stage(epochs=1),))
    model = dataclasses.replace(options.model, decoder=decoder, color_levels=color_levels)
    options = dataclasses.replace(options, model=model)
    run(options, tmp_path / "run", data, cache)
    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "bundle")
    model, vocabulary, *_ = checkpoint.load_model(tmp_path / "run" / "best.pt")
    start = Start.read("bundle", tmp_path)
    assert start.vocabulary.words == vocabulary.words
    again = type(model)(options.model, len(vocabulary))
    start.give(again, vocabulary)
    for (name, ours), theirs in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        if ours.is_floating_point():
            assert torch.equal(ours.half().float() if "running" not in name else ours, theirs), name


@pytest.mark.parametrize("place", ["run/best.pt", "bundle"])
def test_training_goes_on_from_it_with_new_words(
    place: str, trained: Path, data: Path, cache: Path, tmp_path: Path
) -> None:
    images = tmp_path / "images"
    images.symlink_to(data / "images")
    (tmp_path / "captions.json").write_text(
        (data / "captions.json").read_text().replace('"a red square"', '"a crimson tile"')
    )
    (tmp_path / "start").symlink_to(trained / place)
    options = squares.options(
        (squares.stage(epochs=1, learning_rate=0.0),), start="start", ema_decay=0.0, model=ModelOptions()
    )
    trainer = run(options, tmp_path / "run", tmp_path, cache)
    before = Start.read("start", tmp_path)
    assert trainer.options.model == squares.options().model
    words = trainer.vocabulary.words
    assert words[: len(before.vocabulary)] == before.vocabulary.words
    assert set(words[len(before.vocabulary) :]) == {"crimson", "tile"}
    after = trainer.model.state_dict()["decoder.embedding.weight"]
    assert torch.equal(after[: len(before.vocabulary)], before.weights["decoder.embedding.weight"])


@pytest.mark.parametrize("named", ["all", "colours"])
def test_colors_can_be_added(named: str, trained: Path, data: Path, cache: Path, tmp_path: Path) -> None:
    for name in ("captions.json", "images"):
        (tmp_path / name).symlink_to(data / name)
    (tmp_path / "start").symlink_to(trained / "bundle")
    colored = dataclasses.replace(squares.options().model, color_levels=3)
    options = squares.options(
        (squares.stage(epochs=1, learning_rate=1e-9),),
        start="start",
        ema_decay=0.0,
        model=colored if named == "all" else ModelOptions(color_levels=3),
    )
    trainer = run(options, tmp_path / "run", tmp_path, cache)
    assert trainer.options.model == colored
    colors = trainer.model.encoder.colors
    assert colors is not None and 0 < colors.projection.weight.abs().max() < 1e-6
    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "start-2")
    again = dataclasses.replace(options, start="start-2", model=ModelOptions(color_levels=4))
    with pytest.raises(DataError, match="does not match the model to start from"):
        squares.trainer(again, tmp_path / "2", tmp_path, cache)


def test_a_checklist_can_be_added_and_is_kept(trained: Path, data: Path, cache: Path, tmp_path: Path) -> None:
    for name in ("captions.json", "images"):
        (tmp_path / name).symlink_to(data / name)
    (tmp_path / "start").symlink_to(trained / "bundle")
    options = squares.options(
        (squares.stage(epochs=1, learning_rate=1e-9, objectives={"cross_entropy": 1.0}),),
        start="start",
        model=ModelOptions(bonus=BonusOptions(checklist_weight=0.2)),
    )
    trainer = run(options, tmp_path / "run", tmp_path, cache)
    assert trainer.model.options.bonus.checklist_weight == 0.2
    assert isinstance(trainer.progress, squares.Silent)
    assert any("without the objective bag_of_words" in note for note in trainer.progress.notes)
    again = dataclasses.replace(options, start="run/best.pt", model=ModelOptions())
    assert run(again, tmp_path / "2", tmp_path, cache).options.model.bonus.checklist_weight == 0.2


def test_another_architecture_is_refused(trained: Path, data: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "captions.json").symlink_to(data / "captions.json")
    (tmp_path / "images").symlink_to(data / "images")
    (tmp_path / "bundle").symlink_to(trained / "bundle")
    options = squares.options((squares.stage(epochs=1),), start="bundle")
    options = dataclasses.replace(options, model=dataclasses.replace(options.model, hidden=16))
    with pytest.raises(DataError, match="does not match the model to start from"):
        run(options, tmp_path / "run", tmp_path, cache)
    with pytest.raises(BundleError, match="does not exist"):
        run(dataclasses.replace(options, start="nowhere"), tmp_path / "run", tmp_path, cache)


def test_a_tuned_model_keeps_the_calibration(trained: Path, data: Path, cache: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("captions.json", "images"):
        (root / name).symlink_to(data / name)
    shutil.copytree(trained / "bundle", root / "start")
    confidence = {"slope": 2.5, "intercept": 1.25, "event": "good"}
    change_manifest(root / "start", {"confidence": confidence})
    options = squares.options(
        (squares.stage(epochs=1, learning_rate=1e-9),), start="start", model=ModelOptions()
    )
    run(options, tmp_path / "run", root, cache)
    export_bundle(tmp_path / "run" / "best.pt", tmp_path / "tuned")
    assert Bundle.load(tmp_path / "tuned").manifest["confidence"] == confidence
    assert Start.read("run/best.pt", tmp_path).confidence == confidence


def test_the_default_encoder_takes_the_place_of_another_if_the_file_names_it(trained: Path) -> None:
    start = Start.read("bundle", trained)
    assert start.model.encoder == tiny_cnn.NAME
    values = squares.options(start="bundle", model=ModelOptions()).to_dict()
    for table, encoder in (({}, tiny_cnn.NAME), ({"encoder": "efficientnet_lite2"}, "efficientnet_lite2")):
        options = TrainOptions.from_dict({**values, "model": table})
        assert start.architecture(options.model, options.model_sets).encoder == encoder


def test_bonuses_that_the_file_sets_to_their_defaults_are_set(trained: Path) -> None:
    start = Start.read("bundle", trained)
    with_bonus = BonusOptions(checklist_weight=0.5, checklist_power=0.7)
    start = dataclasses.replace(start, model=dataclasses.replace(start.model, bonus=with_bonus))
    values = squares.options(start="bundle", model=ModelOptions()).to_dict()
    for bonus, power in (({}, 0.7), ({"checklist_power": 1.0}, 1.0)):
        options = TrainOptions.from_dict({**values, "model": {"bonus": bonus}})
        found = start.architecture(options.model, options.model_sets).bonus
        assert found == dataclasses.replace(with_bonus, checklist_power=power)


def test_a_run_can_start_from_an_installed_model(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPTIONER_HOME", str(tmp_path / "home"))
    shutil.copytree(trained / "bundle", tmp_path / "home" / "models" / "mine")
    start = Start.read("mine", tmp_path / "data")
    assert start.vocabulary.words == Start.read("bundle", trained).vocabulary.words
    with pytest.raises(BundleError, match="yours"):
        Start.read("yours", tmp_path / "data")


def test_a_run_says_how_good_its_start_is_and_whether_it_became_better(
    trained: Path, data: Path, cache: Path, tmp_path: Path
) -> None:
    for name in ("captions.json", "images"):
        (tmp_path / name).symlink_to(data / name)
    (tmp_path / "start").symlink_to(trained / "bundle")
    stage = squares.stage(epochs=1, learning_rate=0.0, encoder_learning_rate=0.0, final_learning_rate=0.0)
    stage = dataclasses.replace(stage, warmup_steps=0)
    options = squares.options((stage,), start="start", model=ModelOptions())
    trainer = run(options, tmp_path / "run", tmp_path, cache)
    _, before, epoch, *_, last = [one for one in trainer.progress.notes if "ema_decay" not in one]
    assert before.startswith("before: squares CIDEr ") and before.removeprefix("before: ") in epoch
    assert last == "no epoch captions the validation images better than the model that the run started from"


def test_the_backbone_of_a_start_can_be_mixed_with_the_pretrained_one() -> None:
    tuned, pretrained = build_backbone("efficientnet_lite2", None), build_backbone("efficientnet_lite2")
    name = next(name for name, value in tuned.named_parameters() if value.dim() > 1)
    own = tuned.state_dict()[name].clone()
    mix_backbone(tuned, "efficientnet_lite2", 0.25)
    torch.testing.assert_close(tuned.state_dict()[name], 0.75 * own + 0.25 * pretrained.state_dict()[name])


def test_only_a_start_can_be_mixed() -> None:
    with pytest.raises(DataError, match="pretrained_share must be from 0 to 1, and needs a start"):
        dataclasses.replace(squares.options((squares.stage(),)), pretrained_share=0.5)


def test_a_bundle_with_class_evidence_gives_it_to_a_run_with_new_words(tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = squares.options((squares.stage(),))
    small = {
        "image_size": 64,
        "features": 16,
        "hidden": 16,
        "embedding": 16,
        "attention": "scaled_dot_product",
    }
    classes = {
        "encoder": "efficientnet_lite0",
        "decoder": "two_lstm",
        "bonus": BonusOptions(classes=3, named_words=2),
    }
    options = dataclasses.replace(options, model=ModelOptions(**small, **classes))
    words = Vocabulary([*SPECIAL, "a", "cat", "sits", "dog", "on"])
    model = CaptionModel(options.model, len(words)).eval()
    model.evidence.membership.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    model.evidence.column[words.encode("dog cat")] = torch.tensor([0, 1])
    contents = {"options": options.to_dict(), "vocabulary": list(words.words), "model": model.state_dict()}
    checkpoint.save(tmp_path / "model.pt", contents)
    export_bundle(tmp_path / "model.pt", tmp_path / "bundle")

    start = Start.read("bundle", tmp_path)
    extended = start.extended(Vocabulary([*SPECIAL, "owl"]))
    again = CaptionModel(start.model, len(extended)).eval()
    start.give(again, extended)

    def said(model: CaptionModel, words: Vocabulary) -> torch.Tensor:
        pixels = torch.full((1, 64, 64, 3), 99, dtype=torch.uint8)
        logits, _ = model.decoder(torch.tensor([[words.encode("a cat sits")]]), *model.encode(pixels))
        return logits[0, 0][:, words.encode("a cat sits dog on")]

    torch.testing.assert_close(said(again, extended), said(model, words), atol=2e-3, rtol=2e-3)


def test_the_embedded_model_can_learn_words(tmp_path: Path) -> None:
    start = Start.read("default", tmp_path)
    words = Vocabulary([*start.vocabulary.words, "thingamabob", "whatsit"])
    model = CaptionModel(start.model, len(words))
    start.give(model, words)
    again = model.state_dict()["decoder.embedding.weight"]
    assert torch.equal(again[:-2], start.weights["decoder.embedding.weight"])


@torch.inference_mode()
def test_training_the_embedded_model_begins_with_its_captions(tmp_path: Path) -> None:
    photo, captioner = EXAMPLES / "cat.jpg", Captioner.load(device="cpu", precision="float32")
    start = Start.read("default", tmp_path)
    model = CaptionModel(start.model, len(start.vocabulary)).eval()
    start.give(model, start.vocabulary)
    pixels = captioner.preprocess(photo)[None]
    memory, state = model.encode(torch.from_numpy(pixels))
    steppers = TorchStepper(model.decoder, memory, state), captioner.encode(pixels)
    ours, theirs = (search(stepper, 1, start.search)[0][0].tokens for stepper in steppers)
    assert ours == theirs


def test_a_new_encoder_is_pretrained_and_the_rest_is_kept(tmp_path: Path) -> None:
    words = [*SPECIAL, *(f"word{number}" for number in range(9))]
    bonus = BonusOptions(checklist_weight=1.0, classes=5, named_words=3)
    small = ModelOptions(
        encoder=tiny_cnn.NAME,
        image_size=64,
        features=8,
        hidden=8,
        embedding=8,
        attention_hidden=8,
        attention_heads=1,
        bonus=bonus,
    )
    options = dataclasses.replace(squares.options(), model=small)
    before = CaptionModel(small, len(words))
    contents = {"options": options.to_dict(), "vocabulary": words, "model": before.state_dict()}
    checkpoint.save(tmp_path / "before.pt", contents)
    start = Start.read("before.pt", tmp_path)
    architecture = start.architecture(ModelOptions(encoder=tiny_clip.NAME))
    assert architecture == dataclasses.replace(small, encoder=tiny_clip.NAME)
    tiny_clip.write_file(build_backbone(tiny_clip.NAME, None).segments[0], tmp_path / "clip.onnx", True)
    after = CaptionModel(architecture, len(words), str(tmp_path / "clip.onnx"))
    own = {name: value.clone() for name, value in after.state_dict().items()}
    start.give(after, Vocabulary(words))
    new = ("encoder.backbone.", "encoder.projections.", "decoder.bonus.evidence.classes.")
    for name, value in after.state_dict().items():
        expected = own[name] if name.startswith(new) else before.state_dict()[name]
        assert torch.equal(value, expected), name


def test_all_classes_of_a_new_encoder_can_be_learnt() -> None:
    """Also those of labels, which are closed in a new model until they are fitted."""
    model = squares.with_bonus(
        dataclasses.replace(squares.CLASSIFYING, encoder=tiny_cnn.NAME),
        classes=5,
        label_classes=("owl", "fox"),
        named_words=3,
    )
    vocabulary = Vocabulary([*SPECIAL, "owl", "fox"])
    before = CaptionModel(model, len(vocabulary))
    after = CaptionModel(dataclasses.replace(model, encoder="efficientnet_lite0"), len(vocabulary))
    assert after.evidence is not None and float(after.evidence.classes.bias.detach().min()) < -10
    Start(vocabulary, model, before.state_dict()).give(after, vocabulary)
    assert float(after.evidence.classes.bias.detach().min()) > -1


def test_a_weight_without_axes_is_given_too() -> None:
    """As the scale of CLIP's photos."""
    vocabulary = Vocabulary([*SPECIAL, "a"])
    model = CaptionModel(squares.options().model, len(vocabulary))
    model.encoder.register_buffer("factor", torch.tensor(1.0))
    weights = {name: torch.full_like(value, 2) for name, value in model.state_dict().items()}
    Start(vocabulary, model.options, weights).give(model, vocabulary)
    assert model.encoder.factor == 2
