"""From photos over corrected captions to a model that was taught: docs/teaching.md, with a tiny model."""

from __future__ import annotations

import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from support import squares

from captioner.captioner import Captioner
from captioner.cli.main import main
from captioner.export.bundle import export_bundle

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bundle(data: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be taught."""
    folder = tmp_path_factory.mktemp("start")
    squares.trainer(squares.options((squares.stage(epochs=1),)), folder / "run", data, cache).run()
    export_bundle(folder / "run" / "best.pt", folder / "bundle")
    return folder / "bundle"


def test_the_commands_of_the_page_run(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    config = tmp_path / "examples" / "teach" / "teach.toml"
    config.write_text(config.read_text().replace('start = "default"', f'start = "{bundle}"'))
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "teaching.md").read_text()
    commands = [shlex.split(line)[1:] for line in page.splitlines() if line.startswith("    captioner ")]
    assert [command[0] for command in commands] == [
        *("batch", "demo", "batch", "teach", "model", "caption", "train", "export", "evaluate")
    ]
    (tmp_path / "runs").mkdir()
    commands = [command for command in commands if command[0] != "demo"]  # runs until it is stopped
    for command in commands:
        expanded = [map(str, sorted(Path().glob(part))) if "*" in part else [part] for part in command]
        arguments = [name for names in expanded for name in names]
        if command[0] in ("batch", "teach"):
            arguments += ["--model", str(bundle), "--device", "cpu"]
        elif command[0] == "train":
            arguments += ["--set", "stages.0.epochs=2", "--device", "cpu"]
        assert main(arguments) == 0, command
    assert (tmp_path / "runs" / "sidecars" / "stairs.txt").read_text() == (
        "two people are walking up an outdoor staircase\n"
    )
    for model in (tmp_path / "runs" / "bundle", "mine"):
        taught = Captioner.load(model, device="cpu")
        assert {"rocket", "staircase"} <= set(taught.bundle.vocabulary.words)


def test_what_teaching_gains_is_measured(
    data: Path,
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [str(ROOT / "benchmarks" / "teach.py"), str(data), "-o", str(tmp_path / "out")]
    command += ["--split", "train", "--photos", "12", "--model", str(bundle), "--set", "stages.0.epochs=1"]
    monkeypatch.setattr(sys, "argv", command)  # in this process, which knows the tiny network
    runpy.run_path(command[0], run_name="__main__")
    said = capsys.readouterr().out
    assert "12 photos corrected" in said and "CIDEr before" in said
