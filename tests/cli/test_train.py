"""`captioner train`, `export` and `evaluate`: from captions to a scored bundle, as a user does it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support import squares
from support.one_thread import one_thread, seeded  # noqa: F401

from captioner.cli.main import main
from captioner.errors import DeviceError
from captioner.files.locks import hold_folder
from captioner.model.bundle import Bundle
from captioner.training.device import torch_device

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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("squares")
    squares.write(folder)
    (folder / "squares.toml").write_text(CONFIG)
    return folder


@pytest.fixture(scope="module")
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


def test_training_tells_how_it_goes_and_what_comes_next(data, tmp_path, capsys) -> None:
    assert train(data, tmp_path) == 0
    errors = told(capsys)
    assert "words 1 of 1: loss" in errors and "squares CIDEr" in errors
    assert f"captioner export {tmp_path / 'best.pt'} -o BUNDLE --evaluate {data}" in errors
    assert train(data, tmp_path) == 0  # there is nothing left to do
    assert "loss" not in told(capsys)


def test_weights_that_are_no_better_than_the_start_are_not_recommended(data, run, tmp_path, capsys) -> None:
    start = ["--set", f'start="{run / "best.pt"}"', "--set", "stages.0.warmup_steps=0"]
    rates = ["learning_rate", "encoder_learning_rate", "final_learning_rate"]
    still = [word for rate in rates for word in ("--set", f"stages.0.{rate}=0.0")]
    for _ in ("the run", "the same command once it has ended"):
        assert train(data, tmp_path, *start, *still) == 0
        *_, no_better, last = told(capsys).splitlines()
        assert "no epoch captions the validation images better" in no_better
        assert "keep that model; the best weights of this run are in" in last


@pytest.mark.parametrize("decoder", ["two_lstm", "up_down", "transformer"])
def test_options_are_changed_by_name(data, tmp_path, decoder) -> None:
    changes = ["--set", "model.hidden=24", "--set", "stages.0.doubly_stochastic=0", "--decoder", decoder]
    assert train(data, tmp_path, *changes) == 0
    from captioner.training.weights.checkpoint import load_model

    _, _, options, _ = load_model(tmp_path / "best.pt")
    assert (options.model.hidden, options.model.decoder) == (24, decoder)
    assert "doubly_stochastic" not in options.stages[0].objectives


def test_without_validation_the_last_weights_are_named(data, tmp_path, capsys) -> None:
    assert train(data, tmp_path, "--set", 'data.0.val=""') == 0
    assert f"captioner export {tmp_path / 'last.pt'} -o BUNDLE" in told(capsys)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "seed"], "--set takes NAME=VALUE, got 'seed'"),
        (["--set", "sed=1"], "sed: unknown option"),
        (["--set", "epochs=3"], "epochs: unknown option; it belongs to [[stages]]"),
        (["--set", "stages.0.hiden=3"], "stages[0].hiden: unknown option\n"),
        (["--set", "stages.0.epoch=3"], "stages[0].epoch: unknown option; did you mean epochs?"),
        (["--set", "stages.0.hidden=3"], "stages[0].hidden: unknown option; it belongs to [model]"),
        (["--set", "seed=one"], "seed: expected a whole number, got 'one'"),
        (["--set", "stages.0.mirror=1"], "stages[0].mirror: expected true or false, got 1"),
        (["--set", "data.0.images=[1]"], "data[0].images[0]: expected a string, got 1"),
        (["--set", "data.0.repeat=0"], "data[0]: repeat must be at least 1, got 0"),
        (["--set", "stages.7.epochs=1"], "there is no option stages.7.epochs"),
        (["--set", "stages.0.epochs=0"], "stages[0]: epochs must be at least 1"),
        (["--set", "stages.0.zoom=0"], "zoom must be above 0 and at most 1"),
        (
            ["--set", "stages.0.zoom=0.5", "--set", "model.resize='letterbox'"],
            "zoom needs photos that are squashed",
        ),
        (["--set", "cached=photos"], "cached must be one of features, pixels, got 'photos'"),
        (["--set", "stages.0.disturbed=1.5"], "disturbed must be from 0 to 1"),
        (
            ["--set", "stages.0.disturbed=0.5", "--set", "stages.0.tuned_segments=1"],
            'disturbed needs the pixels of photos: set cached = "pixels"',
        ),
        (
            ["--set", "stages.0.disturbed=0.5", "--set", "model.resize='letterbox'"],
            "disturbed needs photos that are squashed",
        ),
        (["--set", "stages.0.stochastic_depth=1"], "stochastic_depth must be at least 0 and below 1"),
        (
            ["--set", "stages.0.stochastic_depth=0.1"],
            "no residual blocks that stochastic_depth could leave out",
        ),
        (["--decoder", "gru"], "unknown decoder 'gru'"),
        (["--attention", "ears"], "unknown attention 'ears'"),
        (["--decoder", "transformer", "--attention", "visual_sentinel"], "needs the cell of an LSTM"),
        (["--decoder", "transformer", "--set", "model.hidden=20"], "a multiple of attention_heads"),
        (["--decoder", "transformer", "--set", "model.layers=0"], "layers must be at least 1"),
        (["--set", "model.refiner_layers=-1"], "refiner_layers must be at least 0"),
        (["--set", "model.refiner_layers=1", "--set", "model.features=20"], "a multiple of attention_heads"),
        (["--encoder", "no_such"], "torchvision has no network called no_such"),
        (["--set", "data.0.captions=none.json"], "none.json is looked for in "),
        (["--set", "data.0.images=['nowhere']"], "give its folder as --data-root"),
        (["--set", "data.0.images=['/nowhere']"], "there is no /nowhere\n"),
        (["--set", "data.0.train=holidays"], "holidays"),
        (["--set", "data.0.val_fraction=0.9999"], "no images are left to train on"),
        (["--set", "search.beam_size=99"], "search: beam_size must be from 1 to 16"),
        (["--set", "search.attention=true"], "search.attention: unknown option"),
        (["--set", "beam_size=99"], "beam_size must be from 1 to 16"),
        (["--set", "max_words=100"], "max_words must be from 1 to 64"),
        (["--set", f"stages.0.epochs={'1' * 5000}"], "epochs: expected a whole number"),
        (["--set", f"stages.0.learning_rate={'1' * 400}"], "learning_rate: expected a number"),
        (["--set", f"seed={'[' * 3000}"], "seed: expected a whole number"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_once(data, tmp_path, capsys, arguments, reason) -> None:
    assert train(data, tmp_path / "run", *arguments) == 2
    errors = told(capsys)
    *_, last = errors.splitlines()  # below what is said of the data
    assert reason in errors and last.startswith("captioner: ") and "Traceback" not in errors
    assert not list((tmp_path / "run").glob("*.lock"))


def test_what_is_wrong_with_a_configuration_is_said_with_its_name(data, tmp_path, capsys) -> None:
    for text, reason in (('name = "x"', "missing data, stages"), ("x = 1", "x: unknown option")):
        (tmp_path / "mine.toml").write_text(text)
        assert train(data, tmp_path / "run", config=str(tmp_path / "mine.toml")) == 2
        assert f"captioner: {tmp_path / 'mine.toml'}: {reason}" in told(capsys)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("nowhere.toml", "there is no configuration"),
        ("defualt", "; did you mean default?"),
        ("captions.json", "not valid TOML"),
    ],
)
def test_a_configuration_that_is_none(data, tmp_path, capsys, config, reason) -> None:
    assert train(data, tmp_path, config=config) == 2
    errors = told(capsys)
    assert reason in errors and errors.count("\n") == 1


@pytest.mark.parametrize(
    "value", ["1" * 5000, "[" * 100_000, f"{{{'a.' * 5000}b = 1}}"], ids=["digits", "brackets", "dots"]
)
def test_a_configuration_without_end_is_no_toml(tmp_path, capsys, value) -> None:
    (tmp_path / "run.toml").write_text(f"name = {value}")
    assert main(["train", str(tmp_path / "run.toml"), "-o", str(tmp_path / "run")]) == 2
    errors = told(capsys)
    assert "run.toml is not valid TOML: " in errors and errors.count("\n") == 1


def test_what_is_not_there_is_said_without_loading_pytorch() -> None:
    code = "import sys; from captioner.cli.main import main; s = main(['train', 'nope.toml']);"
    code += " sys.exit(s if 'torch' not in sys.modules else 'loaded')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "there is no configuration nope.toml; included recipes are coco, default," in ended.stderr


def test_the_recipe_that_comes_along_is_known(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "default").mkdir()  # a folder of data does not hide it
    assert main(["train", "default", "-o", str(tmp_path), "--data-root", str(tmp_path)]) == 2
    assert str(tmp_path) in told(capsys)  # where its data would be


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("seed=-1", "seed must be at least 0 and below 2^63, got -1"),
        ("seed=99999999999999999999999", "seed must be at least 0"),
        ("stages.0.name.x.y=1", "there is no option stages.0.name.x.y"),
        ("start=defualt", "there is no model defualt, and "),
        ("start=defualt", "; did you mean default?"),
        ("model.hidden=100000000000", "a model of this size does not fit into the memory"),
        (f"seed{'.x' * 5000}=1", "there is no option seed.x.x.x"),
    ],
)
def test_changes_that_are_none(data, tmp_path, capsys, change, reason) -> None:
    run = ["train", str(data / "squares.toml"), "-o", str(tmp_path / "run"), "--set", change]
    assert main(run) == 2
    errors = told(capsys)
    assert reason in errors and errors.count("\n") == 1


def test_a_data_set_in_single_brackets_is_told(data, tmp_path, capsys) -> None:
    (data / "single.toml").write_text(CONFIG.replace("[[data]]", "[data]"))
    assert train(data, tmp_path, config="single.toml") == 2
    assert "data: there may be several; write [[data]]" in told(capsys)


def test_commands_to_copy_are_quoted(data, tmp_path, capsys) -> None:
    assert train(data, tmp_path / "my run") == 0
    assert f"captioner export '{tmp_path / 'my run' / 'best.pt'}' -o BUNDLE --evaluate {data}" in told(capsys)


@pytest.mark.parametrize("command", ["export", "caption"])
def test_a_run_in_place_of_a_checkpoint_or_a_model_is_told(command, run, tmp_path, capsys) -> None:
    arguments = {
        "export": ["export", str(run), "-o", str(tmp_path / "bundle")],
        "caption": ["caption", str(tmp_path / "x.jpg"), "--model", str(run)],
    }
    capsys.readouterr()
    assert main(arguments[command]) == 2
    said = {
        "export": f"{run} is the folder of a run; its checkpoint is {run / 'best.pt'}",
        "caption": f"{run} is of a training run; captioner export {run / 'best.pt'} -o BUNDLE makes a model",
    }
    assert said[command] in told(capsys)


def test_photos_beside_a_configuration_that_is_named_without_its_folder(data, monkeypatch, capsys) -> None:
    monkeypatch.chdir(data / "images")
    (data / "images" / "here.csv").write_text("image,caption\n00.png,a red square\n")
    (data / "images" / "here.toml").write_text(
        CONFIG.replace("captions.json", "here.csv").replace('["images"]', '["."]')
    )
    assert main(["train", "here.toml", "-o", "run", "--device", "cpu", "--threads", "1"]) == 0


@pytest.mark.parametrize("arguments", [["--threads", "0"], ["--device", "gpu"]])
def test_flags_are_checked_as_for_other_commands(data, tmp_path, capsys, arguments) -> None:
    with pytest.raises(SystemExit):
        main(["train", str(data / "squares.toml"), "-o", str(tmp_path / "run"), *arguments])
    assert f"argument {arguments[0]}: " in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_so_many_threads_are_refused_at_once(data, tmp_path, capsys) -> None:
    folder = ["-o", str(tmp_path / "run")]
    assert main(["train", str(data / "squares.toml"), *folder, "--threads", "100000"]) == 2
    assert main(["teach", str(data), str(data / "captions.json"), *folder, "--threads", "100000"]) == 2
    assert told(capsys).count("threads must be from 1 to") == 2


@pytest.mark.parametrize("device", ["cuda", "cuda:99"])
def test_training_on_a_gpu_that_is_not_there(data, tmp_path, capsys, device) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert train(data, tmp_path, "--device", device) == 2
    assert f"{device.upper()} cannot be used" in told(capsys)


def test_a_gpu_is_chosen_by_number(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert torch_device("cuda:1") == torch.device("cuda:1")
    assert torch_device("auto") == torch.device("cuda")
    assert torch_device("cpu") == torch.device("cpu")
    with pytest.raises(DeviceError, match="the last GPU that PyTorch finds is cuda:1"):
        torch_device("cuda:2")


@pytest.mark.parametrize("when", ["trainer.Trainer._train_batch", "prepare.load_examples"])
@pytest.mark.parametrize("signal", [KeyboardInterrupt(), SystemExit(143)])
def test_an_interrupted_run_says_what_is_kept(when, signal, data, tmp_path, monkeypatch, capsys) -> None:
    def interrupt(*_: object) -> None:
        raise signal

    monkeypatch.setattr(f"captioner.training.loop.{when}", interrupt)
    if isinstance(signal, SystemExit):
        with pytest.raises(SystemExit):
            train(data, tmp_path)
    else:
        assert train(data, tmp_path) == 130
    assert "the same command starts again: nothing was saved yet" in told(capsys)


def test_from_a_checkpoint_to_scores(data, run, tmp_path, capsys) -> None:
    bundle, found = tmp_path / "bundle", tmp_path / "captions.jsonl"
    card = tmp_path / "card.md"
    card.write_text("# Squares\n")
    photos = [str(path) for path in sorted((data / "images").iterdir())[:3]]
    capsys.readouterr()
    arguments = [
        "export",
        str(run / "best.pt"),
        "-o",
        str(bundle),
        "--name",
        "squares-1",
        "--card",
        str(card),
    ]
    scored = tmp_path / "scores.json"
    scored.write_text('{"cider": 55.5, "intervals": {"cider": [50, 60]}}')
    arguments += ["--scores", f"squares={scored}"]
    assert main([*arguments, "--beam", "2", "--images", *photos]) == 0
    errors = told(capsys)
    assert "3 captions alike in ONNX and PyTorch" in errors and "it has no INT8 graphs" in errors
    loaded = Bundle.load(bundle)
    assert (loaded.name, loaded.decoding.beam_size) == ("squares-1", 2)
    assert loaded.manifest["scores"] == {"squares": {"cider": 55.5}}
    assert (bundle / "MODEL_CARD.md").read_text() == "# Squares\n"

    arguments = ["evaluate", str(data / "captions.json"), "--images", str(data / "images"), "--split", "val"]
    options = ["--model", str(bundle), "--device", "cpu", "--json", "-o", str(found)]
    assert main([*arguments, *options]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["cider"] >= 0 and 0 <= scores["bleu_4"] <= 100
    records = [json.loads(line) for line in found.read_text().splitlines()]
    assert [r["image"] for r in records] == [f"{n}.png" for n in range(24, 30)]
    # What the trainer validated is what was shipped.
    saved = json.loads((run / "log.jsonl").read_text().splitlines()[-1])["val"]["squares"]
    assert main([*arguments, *options[:-2], "--beam", "3"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["cider"] == pytest.approx(saved["cider"], abs=0.1)

    assert main([*arguments, *options[:-2], "--faithfulness", "--hidden-share", "0.3"]) == 0
    tested = json.loads(capsys.readouterr().out)["faithfulness"]
    assert tested["images"] == 6 and tested["words"] > 6
    assert tested["intervals"]["fall_top"][0] <= tested["fall_top"] <= tested["intervals"]["fall_top"][1]
    assert main([*arguments, *options[:4], "--faithfulness"]) == 0
    shown = capsys.readouterr().out
    assert "top cells" in shown and "content" in shown

    assert main(["export", str(run / "best.pt"), "-o", str(bundle)]) == 2
    assert "exists already" in told(capsys)


@pytest.mark.parametrize(
    ("checkpoint", "arguments", "reason"),
    [
        ("nowhere.pt", [], "cannot read"),
        ("captions.json", [], "not a file of tensors"),
        ("run/best.pt", ["--images", "nowhere.jpg"], "nowhere.jpg: No such file or directory"),
        ("run/best.pt", ["--images", "empty"], "empty: there are no images in this folder"),
        ("run/best.pt", ["--int8", "few", "few/0.png"], "at least 8 calibration photos, got 4"),
        ("run/best.pt", ["--card", "nowhere.md"], "cannot read the model card"),
        ("run/best.pt", ["--avoid", "nowhere.txt"], "cannot read the phrases nowhere.txt"),
        ("run/best.pt", ["--scores", "squares=nowhere.json"], "--scores takes DATA=FILE"),
        ("run/best.pt", ["--scores", "squares=deep.json"], "--scores takes DATA=FILE"),
    ],
)
def test_what_cannot_be_exported(
    data, run, tmp_path, capsys, monkeypatch, checkpoint, arguments, reason
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deep.json").write_text("[" * 100_000)
    Path("empty").mkdir()
    Path("few/below").mkdir(parents=True)
    for name in ("0", "1", "below/2"):
        shutil.copy(data / "images" / "00.png", f"few/{name}.png")
    capsys.readouterr()
    assert main(["export", str(data / checkpoint), "-o", str(tmp_path / "bundle"), *arguments]) == 2
    errors = told(capsys)
    assert reason in errors and errors.count("\n") == 1
    assert not (tmp_path / "bundle").exists()


def test_phrases_to_avoid_are_read_from_a_file(run, tmp_path, capsys) -> None:
    bundle, phrases = tmp_path / "bundle", tmp_path / "phrases.txt"
    phrases.write_text("a red\n\n  on a \n")
    assert main(["export", str(run / "best.pt"), "-o", str(bundle), "--avoid", str(phrases)]) == 0
    assert Bundle.load(bundle).manifest["avoided_phrases"] == ["a red", "on a"]
    phrases.write_text("a gryphon\n")
    capsys.readouterr()
    assert main(["export", str(run / "best.pt"), "-o", str(tmp_path / "b"), "--avoid", str(phrases)]) == 2
    assert "avoided_phrases must be 2 to 8 words of the vocabulary, got 'a gryphon'" in told(capsys)


@pytest.mark.skipif("__import__('os').name != 'posix'", reason="mounts")
def test_a_bundle_on_a_full_disk(run, mount, capsys) -> None:
    bundle = mount("-t", "tmpfs", "-o", "size=16k", "tmpfs") / "bundle"
    capsys.readouterr()
    assert main(["export", str(run / "last.pt"), "-o", str(bundle)]) == 2
    assert told(capsys) == f"captioner: cannot write {bundle}: No space left on device\n"
    assert list(bundle.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("references", "arguments", "reason"),
    [
        ("nowhere.json", [], "nowhere.json"),
        ("squares.toml", [], "squares.toml"),
        ("captions.json", [], "in none of the folders and archives given"),
        ("captions.json", ["--split", "holidays"], "holidays"),
        ("captions.json", ["--images", "nowhere"], "No such file"),
        ("captions.json", ["--images", "{data}/images", "-o", "/nowhere/captions.jsonl"], "cannot write"),
    ],
)
def test_what_cannot_be_evaluated(data, tiny_bundle, capsys, references, arguments, reason) -> None:
    arguments = [argument.replace("{data}", str(data)) for argument in arguments]
    options = ["--model", str(tiny_bundle), "--device", "cpu"]
    assert main(["evaluate", str(data / references), *options, *arguments]) == 2
    errors = told(capsys)
    assert reason in errors and errors.count("\n") == 1


def test_a_run_that_cannot_be_written_is_told_in_a_line(data, tmp_path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert train(data, tmp_path / "file" / "run") == 2
    assert (
        told(capsys).splitlines()[-1]
        == f"captioner: cannot write {tmp_path / 'file' / 'run'}: Not a directory"
    )


def test_two_runs_in_one_folder_are_refused(data, tmp_path, capsys) -> None:
    with hold_folder(tmp_path / "run"):
        assert train(data, tmp_path / "run") == 2
    errors = told(capsys)
    assert "another run is writing this output" in errors and errors.count("\n") == 1
    assert not (tmp_path / "run" / "log.jsonl").exists()
    assert train(data, tmp_path / "run") == 0  # the first has ended
