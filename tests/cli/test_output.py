"""What commands say in common."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.squares_run import CONFIG

from captioner.cli.main import main
from captioner.cli.output import interrupted


@pytest.mark.parametrize(
    ("done", "of", "said"),
    [
        (0, 2, "interrupted; 0 images are done and kept, 2 are left"),
        (1, 2, "interrupted; 1 image is done and kept, 1 is left"),
        (2, 3, "interrupted; 2 images are done and kept, 1 is left"),
    ],
)
def test_one_image_is_counted_as_one(done: int, of: int, said: str) -> None:
    assert interrupted(done, of) == said


@pytest.mark.parametrize(
    "command",
    [
        ["batch", "none", "-o", "{out}", "--format", "txt"],
        ["batch", "none", "-o", "{out}", "--format", "txt,jsonl"],
        ["convert", "torn.jsonl", "-o", "{out}", "--format", "txt"],
        ["gallery", "none", "-o", "{out}/page.html"],
        ["teach", "none", "torn.jsonl", "-o", "{out}"],
        ["export", "torn.jsonl", "-o", "{out}"],
        ["train", "run.toml", "-o", "{out}", "--data-root", "none"],
    ],
    ids=lambda command: "-".join(command[::5]).replace("{out}", ""),
)
def test_a_run_that_fails_leaves_no_folder_but_those_of_the_user(
    command: list[str], tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("none").mkdir()
    Path("torn.jsonl").write_text('{"image": "a.png", "caption": "a dog", "log_prob": -1.0}\n{')
    Path("run.toml").write_text(CONFIG)
    Path("none/captions.json").write_text("{")
    Path("none/images").mkdir()
    if command[0] in ("batch", "gallery"):
        command = [*command, "--model", str(tiny_bundle)]
    if command[0] in ("teach", "export", "train"):
        pytest.importorskip("torch")
    Path("own").mkdir()
    there = sorted(Path().rglob("*"))
    for out in ("own", "new/below"):
        assert main([part.format(out=out) for part in command]) == 2
        assert sorted(Path().rglob("*")) == there
