"""`captioner train`, as a user does it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from support.one_thread import one_thread, seeded  # noqa: F401
from support.squares_run import CONFIG, told, train

from captioner.cli.main import main
from captioner.errors import DeviceError
from captioner.files.locks import hold_folder
from captioner.training.device import torch_device


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
