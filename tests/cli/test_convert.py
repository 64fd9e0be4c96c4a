"""Several formats from one run, and formats made later from the captions of a run."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from support.serving import make_image
from support.spreadsheets import SAVED, resave

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
        '{"image": "a", "caption": "a", "alternatives": [{"caption": 7, "log_prob": -1.0}]}',
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


def write_captions(path: Path) -> Path:
    """Records of a run, with names and captions that are formulas, or not Unicode, and with a failure."""
    numbers = {"log_prob": -6.25, "confidence": 0.5, "model": "m@1"}
    records = [
        {"image": "a.png", "caption": "a dog, wet", **numbers},
        {"image": "b/=c.png", "caption": "=1+1; -2", **numbers},
        {"image": "=d.png", "caption": "a caf\u00e9", **numbers},
        {
            "image": "lat\\udce9.png",
            "image_bytes": "bGF06S5wbmc=",
            "caption": "one \U0001f408 sits",
            **numbers,
        },
        {"image": "e.png", "error": {"code": "not_an_image", "message": "no image; not at all"}},
    ]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


@pytest.mark.skipif(os.name != "posix", reason="names that other systems do not have")
@pytest.mark.parametrize("how", SAVED)
def test_captions_that_a_spreadsheet_saved_are_read(tmp_path, capsys, how) -> None:
    lines, table = write_captions(tmp_path / "captions.jsonl"), tmp_path / "captions.csv"
    assert convert(lines, "-o", table) == 1
    again, out = tmp_path / "out.jsonl", tmp_path / "txt"
    saved = resave(table, how, tmp_path / ("saved.txt" if "text" in how else "saved.csv"))
    for _ in range(2):
        assert convert(saved, "-o", again) == 1
        assert "e.png: no image; not at all" in capsys.readouterr().err
    assert list(map(json.loads, again.open())) == list(map(json.loads, lines.open()))

    resave(table, how, saved, _0="a wet dog", _2="", _4="a person's; =1")
    assert convert(saved, "-o", f"{out}/", "--sentence") == 0  # nothing is wanted of the third
    assert {name: text.decode() for name, text in contents(out).items()} == {
        "a.txt": "A wet dog.\n",
        "b/=c.txt": "=1+1; -2.\n",
        os.fsdecode(b"lat\xe9.txt"): "One \U0001f408 sits.\n",
        "e.txt": "A person's; =1.\n",
    }


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_photos_of_a_table_are_found_however_their_accents_are_written(tmp_path, form) -> None:
    root, table = tmp_path / "photos", tmp_path / "c.csv"
    root.mkdir()
    name = unicodedata.normalize(form, "caf\u00e9.png")
    (root / name).write_bytes(make_image(1))
    table.write_text("image,caption\ncaf\u00e9.png,one\n", encoding="utf-8")
    assert convert(table, "-o", root) == 0
    assert (root / name).with_suffix(".txt").read_text() == "one\n"
    table.write_text("image,caption\ncafe\u0301.png,two\n", encoding="utf-8")
    assert convert(table, "-o", root) == 0
    assert (root / name).with_suffix(".txt").read_text() == "two\n" and len(list(root.glob("*.txt"))) == 1


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        ("image,caption\na.png,a\na.png,b\n", (), "c.csv, line 3: a second row of a.png"),
        ("image,caption\n..,a\n", (), "c.csv, line 2: not a record"),
        (
            "image,caption,log_prob\na.png,a,06. Mar\n",
            (),
            "line 2: log_prob is not a number: 06. Mar; the",
        ),
        (
            "image,caption,confidence\na.png,a,nan\n",
            (),
            "line 2: confidence is not a number: nan; the",
        ),
        ("image;Beschriftung\na.png;a\n", (), "no column caption: the first line names image, beschriftung"),
        ("image,caption\na.png,a, b\n", (), "line 2: more columns than the first line names"),
        ("image,caption,error_code\na.png,,x\n", (), "there are no captions in this file"),
        (
            "image,caption,log_prob\na.png,a,-1\n",
            ("--keywords",),
            "has none; captioner batch --keywords adds them",
        ),
        (
            "image,caption,log_prob\na.png,a,-1\n",
            ("--min-confidence", "0.5"),
            "the captions have no confidence",
        ),
    ],
)
def test_tables_that_cannot_be_converted(tmp_path, capsys, content, flags, message) -> None:
    (tmp_path / "c.csv").write_text(content)
    assert convert(tmp_path / "c.csv", "-o", tmp_path / "out.jsonl", *flags) == 2
    assert message in capsys.readouterr().err


def test_words_and_maps_are_not_in_a_table(photos, tmp_path, batch) -> None:
    lines, table, out = (tmp_path / name for name in ("a.jsonl", "c.csv", "out.jsonl"))
    assert batch(photos, "-o", lines, "--attention", "--alternatives", "1") == 1
    assert convert(lines, "-o", table) == convert(table, "-o", out) == 1
    expected = list(map(json.loads, lines.open()))
    for record in expected:
        for name in ("words", "alternatives"):
            record.pop(name, None)
    assert list(map(json.loads, out.open())) == expected


def test_keywords_of_a_table_are_kept(tmp_path) -> None:
    table, out = tmp_path / "c.csv", tmp_path / "out.jsonl"
    table.write_text("image,caption,log_prob,keywords\na.png,a cat,-1,cat; hot dog\nb.png,a dog,-1,\n")
    assert convert(table, "-o", out, "--keywords") == 0
    assert [json.loads(line)["keywords"] for line in out.open()] == [["cat", "hot dog"], []]


def test_a_workbook_is_no_table(tmp_path, capsys) -> None:
    (tmp_path / "c.xlsx").write_bytes(b"PK\3\4\0\0\xff")
    assert convert(tmp_path / "c.xlsx", "-o", tmp_path / "out.jsonl") == 2
    assert "not a text file; convert reads the .jsonl file that" in capsys.readouterr().err
    assert convert(tmp_path, "-o", tmp_path / "out.jsonl") == 2
    assert f"{tmp_path}: a folder; convert reads the .jsonl file that" in capsys.readouterr().err


def test_a_rejected_caption_is_no_failure(tmp_path, capsys) -> None:
    lines = tmp_path / "captions.jsonl"
    rejected = {"image": "b", "error": {"code": "rejected", "message": "rejected by a person"}}
    lines.write_text(f'{{"image": "a", "caption": "a"}}\n{json.dumps(rejected)}\n')
    for flags in ((), ("--sentence",)):
        assert convert(lines, "-o", tmp_path / "out.csv", *flags) == 0
        assert "2 images in" in (said := capsys.readouterr().err) and "0 of them failed" in said


@pytest.mark.parametrize(("place", "number"), [(1, 2), (2, 3)])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_zeros_that_a_power_failure_leaves_are_passed_over(place, number, end, tmp_path, caplog) -> None:
    """Where a file went on behind them, the next line begins with them, unless they have an end."""
    lines = [json.dumps({"image": name, "caption": "a dog"}).encode() + b"\n" for name in ("a.jpg", "b.jpg")]
    lines.insert(place, bytes(4096) + end)
    (tmp_path / "c.jsonl").write_bytes(b"".join(lines))
    assert convert(tmp_path / "c.jsonl", "-o", tmp_path / "c.csv") == 0
    with (tmp_path / "c.csv").open(encoding="utf-8", newline="") as file:
        assert [row["image"] for row in csv.DictReader(file)] == ["a.jpg", "b.jpg"]
    [said] = caplog.messages
    assert (
        said
        == f"{tmp_path / 'c.jsonl'}, line {number}: zeros, as after a power failure: what was there is lost"
    )
