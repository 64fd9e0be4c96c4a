"""`captioner export`: from a checkpoint to a scored bundle, as a user does it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.one_thread import one_thread, seeded  # noqa: F401
from support.squares_run import told

from captioner.cli.main import main
from captioner.model.bundle import Bundle


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
        ("run/best.pt", ["--card", "nowhere.md"], "cannot read the model card nowhere.md: No such file or"),
        ("run/best.pt", ["--avoid", "nowhere.txt"], "cannot read the phrases nowhere.txt: No such file or"),
        ("run/best.pt", ["--scores", "squares=nowhere.json"], "got 'squares=nowhere.json': No such file or"),
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


@pytest.mark.skipif("__import__('os').name != 'posix'", reason="pipes")
def test_what_is_no_photo_in_a_folder_is_not_opened(tmp_path, capsys) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    for flag in ("--images", "--int8"):
        assert main(["export", "best.pt", "-o", str(tmp_path / "bundle"), flag, str(tmp_path)]) == 2
        assert capsys.readouterr().err == f"captioner: {tmp_path / 'a.jpg'}: not a regular file\n"


def test_a_file_in_the_place_of_a_bundle_stays(tmp_path, capsys) -> None:
    (tmp_path / "bundle").write_text("mine")
    assert main(["export", str(tmp_path / "nowhere.pt"), "-o", str(tmp_path / "bundle")]) == 2
    assert "exists already; a bundle is written to a new folder" in capsys.readouterr().err
    assert (tmp_path / "bundle").read_text() == "mine"


def test_export_has_no_flag_that_a_bundle_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--alternatives", "--attention-size", "--head"):
        with pytest.raises(SystemExit):
            main(["export", "best.pt", "-o", "bundle", flag, "2"])
        assert "unknown argument" in capsys.readouterr().err
