"""Several formats from one run, and formats made later from the captions of a run."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.serving import make_image

from captioner.cli.main import main


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    for number, name in enumerate(("a.png", "b/c.png", "d.png")):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(number))
    (root / "broken.jpg").write_bytes(b"")
    return root


@pytest.fixture
def batch(tiny_bundle: Path) -> Callable[..., int]:
    model = ["--model", str(tiny_bundle), "--device", "cpu", "--threads", "1"]
    return lambda *arguments: main(["batch", *map(str, arguments), *model])


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


def without(names: str) -> str:
    formats = [name for name in names.split(",") if name != "xmp" or shutil.which("exiftool")]
    return ",".join(formats)


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_one_run_writes_every_format(photos, tmp_path, batch, capsys) -> None:
    pytest.importorskip("pyarrow")
    out, formats = tmp_path / "out", without("jsonl,csv,parquet,coco,txt,caption,xmp")
    flags = ("--format", formats, "--attention", "--sentence", "--excel")
    assert batch(photos, "-o", out, *flags) == 1
    made = contents(out)
    for format in formats.split(","):  # each as if it was alone
        alone = tmp_path / "alone" / format
        alone.mkdir(parents=True)
        name = {"coco": "captions.coco.json"}.get(format, f"captions.{format}")
        own = ["--attention"] if format in ("jsonl", "parquet") else []
        own += ["--excel"] if format == "csv" else []
        place = alone if format in ("txt", "caption", "xmp") else alone / name
        assert batch(photos, "-o", place, "--format", format, "--sentence", *own) == 1
        for path, content in contents(alone).items():
            if not path.endswith(".state"):
                assert made.pop(path) == content, path
    assert not made
    capsys.readouterr()
    before = contents(out)
    assert batch(photos, "-o", out, *flags) == 1
    assert "4 of 4 images are done already" in capsys.readouterr().err and contents(out) == before


def test_each_of_several_formats_keeps_what_others_wrote(photos, tmp_path, batch, capsys) -> None:
    out, flags = tmp_path / "out", ("--format", "jsonl,txt,caption")
    assert batch(photos, "-o", out, *flags) == 1
    (out / "a.txt").write_text("mine")
    (photos / "d.png").rename(photos / "d.jpg")
    assert batch(photos, "-o", out, *flags, "--prefix", "now ") == 1
    assert "1 kept as it was" in capsys.readouterr().err
    assert (out / "a.txt").read_text() == "mine"
    for name in ("a.caption", "b/c.txt", "b/c.caption", "d.txt", "d.caption"):
        assert (out / name).read_text().startswith("now ")
    assert [json.loads(line)["image"] for line in (out / "captions.jsonl").open()][-1] == "d.jpg"


def test_a_file_that_cannot_be_written_fails_in_no_other_format(photos, tmp_path, batch, capsys) -> None:
    out, flags = tmp_path / "out", ("--format", "jsonl,txt")
    (out / "a.txt").mkdir(parents=True)
    for _ in range(2):
        assert batch(photos, "-o", out, *flags) == 1
        assert "a.png: cannot write" in capsys.readouterr().err
        first = json.loads((out / "captions.jsonl").read_text().splitlines()[0])
        assert first["image"] == "a.png" and "error" not in first


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--format", "jsonl,jsonl"), "names a format twice"),
        (("--format", "txt,csv", "--attention"), "words and alternatives are for jsonl, parquet"),
        (("--format", "txt,csv", "--coco-ids", "order"), "--coco-ids is for coco"),
    ],
)
def test_formats_that_do_not_go_together(photos, tmp_path, batch, capsys, flags, message) -> None:
    assert batch(photos, "-o", tmp_path / "out", *flags) == 2
    assert message in capsys.readouterr().err


def test_several_formats_need_a_folder(photos, tmp_path, batch, capsys) -> None:
    (tmp_path / "out").write_text("")
    assert batch(photos, "-o", tmp_path / "out", "--format", "txt,csv") == 2
    assert "several formats need a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        batch(photos, "-o", tmp_path / "x", "--format", "txt,exe")
    assert "'exe' is none of jsonl, csv" in capsys.readouterr().err


def test_captions_become_every_format_without_captioning(photos, tmp_path, batch, capsys) -> None:
    lines, alone = tmp_path / "captions.jsonl", tmp_path / "alone"
    alone.mkdir()
    assert batch(photos, "-o", lines) == 1
    for name in ("c.csv", "c.json"):
        assert batch(photos, "-o", alone / name) == 1
        assert convert(lines, "-o", tmp_path / name) == 1
        assert (tmp_path / name).read_bytes() == (alone / name).read_bytes()
    assert "broken.jpg: the file is empty" in capsys.readouterr().err
    assert batch(photos, "-o", alone / "t", "--format", "txt", "--sentence") == 1
    for _ in range(2):
        assert convert(lines, "-o", photos, "--sentence") == 1
        for name in ("a.txt", "b/c.txt", "d.txt"):
            assert (photos / name).read_text() == (alone / "t" / name).read_text()
    assert convert(lines, "-o", tmp_path / "both", "--format", "jsonl,caption") == 1
    assert (tmp_path / "both" / "captions.jsonl").read_text() == lines.read_text()


def test_what_has_changed_is_converted_again(photos, tmp_path, batch) -> None:
    lines, out = tmp_path / "captions.jsonl", tmp_path / "c.csv"
    assert batch(photos, "-o", lines) == 1
    assert convert(lines, "-o", out) == 1
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    records[0] = {"caption": "a person wrote this", "image": "a.png"}  # in any order, without numbers
    lines.write_text("".join(f"{json.dumps(one)}\n" for one in records[:-1]))
    assert convert(lines, "-o", out) == 1
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(records) - 1 and rows[0]["caption"] == "a person wrote this"
    assert rows[0]["log_prob"] == "" and rows[1]["log_prob"] == str(records[1]["log_prob"])


def test_maps_survive(photos, tmp_path, batch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    lines, out = tmp_path / "captions.jsonl", tmp_path / "c.parquet"
    assert batch(photos, "-o", lines, "--attention", "--alternatives", "1") == 1
    assert convert(lines, "-o", out) == 1
    rows = parquet.read_table(out).to_pylist()
    assert rows[0]["words"] and rows[0]["alternatives"] and rows[0]["rows"]


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs the program exiftool")
def test_captions_are_embedded_later(photos, tmp_path, batch) -> None:
    lines = tmp_path / "captions.jsonl"
    assert batch(photos, "-o", lines) == 1
    assert convert(lines, "-o", photos, "--format", "xmp", "--embed") == 1
    done = subprocess.run(["exiftool", "-j", photos / "a.png"], capture_output=True, check=True)
    expected = json.loads(lines.read_text().splitlines()[0])["caption"]
    assert json.loads(done.stdout)[0]["Description"] == expected


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "[]",
        '{"image": 1}',
        '{"image": "a", "caption": 7}',
        "[" * 100_000,
        f'{{"image": "a", "caption": "a", "log_prob": {"9" * 5000}}}',
        '{"image": "", "caption": "a"}',
        '{"image": "b/..", "caption": "a"}',
        '{"image": "..", "caption": "a"}',
        '{"image": "a\\ud800.jpg", "caption": "a"}',
        '{"image": "a", "caption": "a", "keywords": 7}',
        '{"image": "a", "caption": "a", "keywords": [{}]}',
        '{"image": "a", "caption": "a", "log_prob": NaN}',
        '{"image": "a", "caption": "a", "confidence": -Infinity}',
        '{"image": "a", "caption": "a", "alternatives": [{"caption": "b", "log_prob": 1e400}]}',
    ],
)
def test_lines_that_are_no_records(tmp_path, capsys, line) -> None:
    lines = tmp_path / "captions.jsonl"
    lines.write_text(f'{{"image": "a.jpg", "caption": "a"}}\n\n{line}\n')
    assert convert(lines, "-o", tmp_path / "c.csv") == 2
    error = capsys.readouterr().err
    assert "captions.jsonl, line 3: not a record of a caption; convert reads the .jsonl file that" in error


@pytest.mark.parametrize("format", ["csv", "coco", "jsonl", "parquet", "txt", "xmp"])
def test_captions_that_are_not_unicode(tmp_path, format) -> None:
    if format == "xmp" and shutil.which("exiftool") is None:
        pytest.skip("needs the program exiftool")
    (tmp_path / "captions.jsonl").write_text('{"image": "a.jpg", "caption": "a \\ud800 cat"}\n')
    assert convert(tmp_path / "captions.jsonl", "-o", tmp_path / "out", "--format", format) == 0


def test_a_folder_is_the_same_for_convert_and_batch(photos, tmp_path, batch) -> None:
    assert batch(photos, "-o", f"{tmp_path}/lines/", "--format", "jsonl") == 1
    lines = tmp_path / "lines" / "captions.jsonl"
    assert convert(lines, "-o", f"{tmp_path}/new/") == batch(photos, "-o", f"{tmp_path}/old/") == 1
    assert contents(tmp_path / "new") == contents(tmp_path / "old") != {}
    assert convert(lines, "-o", f"{tmp_path}/new/", "--format", "csv") == 1
    assert (tmp_path / "new" / "captions.csv").is_file()


def test_a_dash_is_no_file_to_convert_into(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert convert("none.jsonl", "-o", "-", "--format", "csv") == 2
    assert "- is not a file name: convert writes files" in capsys.readouterr().err
    assert not Path("-").exists()


def test_keywords_come_from_captions_that_have_some(tmp_path, capsys) -> None:
    captions, out = tmp_path / "captions.jsonl", tmp_path / "out.jsonl"
    captions.write_text('{"image": "a", "caption": "a cat"}\n')
    assert convert(captions, "-o", out, "--keywords") == 2
    assert f"--keywords: {captions} has none" in capsys.readouterr().err
    captions.write_text('{"image": "a", "caption": "a cat", "keywords": ["cat"]}\n')
    assert convert(captions, "-o", out, "--keywords") == 0
    assert json.loads(out.read_text())["keywords"] == ["cat"]


def test_keywords_are_a_column_of_csv(tmp_path) -> None:
    captions, out = tmp_path / "captions.jsonl", tmp_path / "out.csv"
    captions.write_text(
        '{"image": "a", "caption": "a cat on a bed", "keywords": ["cat", "bed"]}\n'
        '{"image": "b", "error": {"code": "x", "message": "y"}}\n'
    )
    assert convert(captions, "-o", out, "--keywords") == 1
    with out.open(newline="") as file:
        assert [row["keywords"] for row in csv.DictReader(file)] == ["cat; bed", ""]
    assert convert(captions, "-o", out) == 1
    assert "keywords" not in out.read_text().splitlines()[0]


def test_the_captions_are_not_replaced(tmp_path, capsys) -> None:
    lines = tmp_path / "captions.jsonl"
    lines.write_text('{"image": "a.jpg", "caption": "a"}\n')
    assert convert(lines, "-o", lines, "--overwrite") == 2
    assert convert(tmp_path / "none.jsonl", "-o", tmp_path / "c.csv") == 2
    assert "No such file" in capsys.readouterr().err and lines.read_text().startswith("{")
    assert convert(lines, "-o", tmp_path / "c.csv", "--min-confidence", "0.5") == 0
