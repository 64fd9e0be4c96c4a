"""`captioner gallery` as a user calls it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.captions import make_caption

from captioner.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_wrong_root_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    captions, page = tmp_path / "captions.jsonl", tmp_path / "page.html"
    record = {"caption": "a", "log_prob": -1.0, "words": []}
    captions.write_text("".join(json.dumps({"image": f"{n}.jpg", **record}) + "\n" for n in range(127)))
    assert main(["gallery", str(captions), "--images", str(EXAMPLES), "-o", str(page)]) == 2
    errors = capsys.readouterr().err
    assert "has none of the photos in captions.jsonl, such as 0.jpg; --images ROOT says" in errors
    assert errors.count("\n") == 1 and not page.exists()


@pytest.mark.parametrize("field", ["log_prob", "confidence"])
def test_a_number_beyond_all_bounds_spoils_one_record_only(tmp_path, capsys, field) -> None:
    captions, page = tmp_path / "captions.jsonl", tmp_path / "page.html"
    good = {"image": "cat.jpg", "caption": "a", "log_prob": -1.0, "words": []}
    bad = json.dumps({**good, "image": "coffee.jpg", field: 0}).replace(": 0", ": 1" + 400 * "0")
    captions.write_text(f"{json.dumps(good)}\n{bad}\n")
    assert main(["gallery", str(captions), "--images", str(EXAMPLES), "-o", str(page)]) == 1
    assert "1 of 2 photos failed" in capsys.readouterr().err and page.exists()


@pytest.mark.parametrize("content", ["", "image,caption\ncat.jpg,a cat\n" * 60, '{"a": 1}\n', "\x00" * 5000])
def test_a_file_without_captions_is_refused(content, tmp_path, capsys) -> None:
    captions = tmp_path / "c.csv"
    captions.write_text(content)
    page = tmp_path / "out.html"
    assert main(["gallery", str(captions), "--images", str(EXAMPLES), "-o", str(page)]) == 2
    assert f"captioner: {captions}: there are no captions in this file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["c.csv"]


def test_a_line_longer_than_a_record_is_not_read(tmp_path, capsys) -> None:
    captions = tmp_path / "captions.jsonl"
    with captions.open("wb") as file:
        file.truncate(2**24)
    for command in (
        ["gallery", str(captions), "-o", str(tmp_path / "out.html")],
        ["search", str(captions), "a"],
    ):
        assert main(command) == 2
        assert capsys.readouterr().err == f"captioner: {captions}, line 1: more than 8388608 bytes\n"


@pytest.mark.parametrize("beside", [False, True])
def test_captions_are_shown_as_corrected(beside, tmp_path, tiny_bundle, capsys) -> None:
    photos, page = tmp_path / "photos", tmp_path / "page.html"
    photos.mkdir()
    for name in ("cat", "coffee", "raccoon"):
        shutil.copy(EXAMPLES / f"{name}.jpg", photos)
    decided = [
        {"image": "cat.jpg", "caption": "our cat Minka", "status": "edited"},
        {"image": "coffee.jpg", "caption": "", "status": "rejected"},
    ]
    place = photos / "corrections.jsonl" if beside else tmp_path / "decided.jsonl"
    place.write_text("".join(f"{json.dumps(one)}\n" for one in decided))
    flags = [] if beside else ["--corrections", str(place)]
    assert main(["gallery", str(photos), "-o", str(page), "--model", str(tiny_bundle), *flags]) == 0
    assert f"captioner: captions are shown as corrected in {place}\n" in capsys.readouterr().err
    index = (page.with_suffix(".files") / "index" / "0.js").read_text()
    assert "our cat Minka" in index and "raccoon.jpg" in index and "coffee.jpg" not in index


def test_a_torn_last_line_is_one_failed_photo(tmp_path, tiny_bundle, capsys) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    shutil.copy(EXAMPLES / "cat.jpg", root)
    out = tmp_path / "out.jsonl"
    main(["batch", str(root), "-o", str(out), "--attention", "--model", str(tiny_bundle), "--device", "cpu"])
    with out.open("a") as file:
        file.write('{"image": "torn')
    assert main(["gallery", str(out), "--images", str(root), "-o", str(tmp_path / "out.html")]) == 1
    assert "1 of 2 photos failed" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_part_of_the_first_record(tmp_path, capsys) -> None:
    captions = tmp_path / "captions.jsonl"
    lines = [json.dumps(make_caption().to_dict(name)) for name in ("cat.jpg", "lost.jpg")]
    captions.write_text("\n".join(lines), encoding="utf-8-sig")
    page = tmp_path / "out.html"
    assert main(["gallery", str(captions), "--images", str(EXAMPLES), "-o", str(page)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert errors == ["captioner: lost.jpg: No such file or directory", "captioner: 1 of 2 photos failed"]


def test_nothing_is_said_of_progress_off_a_terminal(tmp_path, tiny_bundle, capsys) -> None:
    shutil.copy(EXAMPLES / "cat.jpg", tmp_path)
    flags = ["-o", str(tmp_path / "out.html"), "--model", str(tiny_bundle), "--device", "cpu"]
    assert main(["gallery", str(tmp_path), *flags]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_pipe_among_the_photos_is_not_read(tmp_path, tiny_bundle, capsys) -> None:
    root, captions = tmp_path / "photos", tmp_path / "captions.jsonl"
    root.mkdir()
    os.mkfifo(root / "b.jpg")  # opening it would wait for a writer
    for name in ("a.jpg", "c.jpg"):
        shutil.copy(EXAMPLES / "cat.jpg", root / name)
    captions.write_text(json.dumps(make_caption().to_dict("b.jpg")))
    page = ["-o", str(tmp_path / "out.html"), "--model", str(tiny_bundle), "--device", "cpu"]
    assert main(["gallery", str(root), *page]) == 1
    errors = capsys.readouterr().err
    assert "captioner: b.jpg: not a regular file\n" in errors and "1 of 3 photos failed" in errors
    assert sorted(path.name for path in (tmp_path / "out.files" / "views").iterdir()) == ["0.js", "2.js"]
    assert main(["gallery", str(captions), "--images", str(root), *page]) == 1
    assert "captioner: b.jpg: not a regular file\n" in capsys.readouterr().err
