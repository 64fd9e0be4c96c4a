"""`captioner gallery` as a user calls it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from captioner.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("content", ["", "image,caption\ncat.jpg,a cat\n" * 60, '{"a": 1}\n', "\x00" * 5000])
def test_a_file_without_captions_is_refused(content, tmp_path, capsys) -> None:
    captions = tmp_path / "c.csv"
    captions.write_text(content)
    page = tmp_path / "out.html"
    assert main(["gallery", str(captions), "--images", str(EXAMPLES), "-o", str(page)]) == 2
    assert f"captioner: {captions}: there are no captions in this file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["c.csv"]


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
