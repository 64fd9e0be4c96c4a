"""Decisions of people about captions, matched with their photos."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.serving import make_image
from support.spreadsheets import SAVED, resave

from captioner.cli.main import main
from captioner.errors import DataError, OutputError
from captioner.folder.corrections import Corrections, CorrectionsFile

needs_exiftool = pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs the program exiftool")


def write(path: Path, image: str, caption: str) -> Path:
    line = json.dumps({"image": image, "caption": caption, "status": "edited"}, ensure_ascii=False)
    path.write_text(f"{line}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\r"])
def test_what_separates_lines_elsewhere_may_be_in_a_caption(tmp_path: Path, separator: str) -> None:
    caption = f"one{separator}two"
    found = Corrections.read(write(tmp_path / "c.jsonl", "a.jpg", caption))
    assert found.decisions == {"a.jpg": ("edited", caption)}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("cafe\u0301.jpg", "caf\u00e9.jpg"),
        ("caf\u00e9.jpg", "cafe\u0301.jpg"),
        ("dogs\\1.jpg", "dogs/1.jpg"),
        ("dogs/1.jpg", "dogs\\1.jpg"),
    ],
)
def test_a_name_is_the_same_with_other_slashes_and_accents(tmp_path: Path, written: str, name: str) -> None:
    corrections = Corrections.read(write(tmp_path / "c.jsonl", written, "a dog"))
    corrections.match([name])
    assert corrections.unmatched == []
    decided = corrections.decide({"image": name, "caption": "a cat"}, lambda record: record)
    assert decided == {"image": name, "caption": "a dog"}


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("lat\udce9.jpg", "lat\udce8.jpg", "lat\ufffd.jpg"),
        ("a b.jpg", "a  b.jpg", "a\nb.jpg"),
        ("a/b.jpg", "a\\b.jpg", "\ta/b.jpg"),
        ("caf\u00e9.jpg", "cafe\u0301.jpg", " caf\u00e9.jpg"),
    ],
)
def test_names_that_look_alike_are_of_different_photos(
    one: str, other: str, alike: str, tmp_path: Path
) -> None:
    def decide(**captions: str) -> dict[str, Any]:
        names = {"one": one, "other": other, "alike": alike}
        lines = ({"image": names[key], "caption": text, "status": "edited"} for key, text in captions.items())
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        corrections = Corrections.read(path)
        corrections.match([one, other])
        found = (corrections.decide({"image": name, "caption": ""}, dict) for name in (one, other))
        return {"said": [record and record["caption"] for record in found], "unsure": corrections.ambiguous}

    path = tmp_path / "c.jsonl"
    assert decide(one="1") == {"said": ["1", None], "unsure": []}
    assert decide(other="2") == {"said": [None, "2"], "unsure": []}
    assert decide(one="1", other="2") == {"said": ["1", "2"], "unsure": []}
    assert decide(alike="3") == {"said": [None, None], "unsure": [alike]}
    assert decide(one="1", alike="3") == {"said": ["1", None], "unsure": [alike]}

    reviewer = CorrectionsFile(path)  # with decisions about the first, and about the name like it
    reviewer.change([{"image": other, "caption": "2", "status": "edited"}])
    assert [line["caption"] for line in reviewer.list()] == ["1", "3", "2"]
    reviewer.change([{"image": other, "status": None}])
    assert [line["caption"] for line in reviewer.list()] == ["1", "3"]


def test_corrections_that_may_be_of_several_photos_are_told(tmp_path, batch, capsys) -> None:
    (tmp_path / "photos").mkdir()
    for name in ("a b.jpg", "a  b.jpg"):
        (tmp_path / "photos" / name).write_bytes(make_image(1, format="JPEG"))
    corrections = write(tmp_path / "c.jsonl", "a\tb.jpg", "not of both")
    out, csv = tmp_path / "out.jsonl", tmp_path / "out.csv"
    assert batch(tmp_path / "photos", "-o", out, "--corrections", corrections) == 0
    told = "not used: 1 correction with a name that others look like, such as a\\tb.jpg; write it exactly"
    assert told in capsys.readouterr().err
    assert main(["convert", str(out), "-o", str(csv), "--corrections", str(corrections)]) == 0
    assert told in capsys.readouterr().err
    assert "not of both" not in out.read_text() + csv.read_text()
    assert main(["search", str(out), "both", "--corrections", str(corrections)]) == 0
    said = capsys.readouterr()
    assert "not used: corrections of a\\tb.jpg, which may be of several photos" in said.err and not said.out


def test_decisions_of_several_reviewers_and_an_editor_are_kept(tmp_path: Path) -> None:
    def decide(reviewer: CorrectionsFile, image: str, caption: str = "a dog") -> None:
        reviewer.change([{"image": image, "caption": caption, "status": "edited"}])

    path = tmp_path / "c.jsonl"
    one, other = CorrectionsFile(path), CorrectionsFile(path)
    decide(one, "a.jpg")
    decide(other, "b.jpg")
    with path.open("a") as file:
        file.write('{"image": "c.jpg", "caption": "by hand", "status": "edited"}\n')
    decide(other, "b.jpg", "a cat")
    one.change([{"image": "a.jpg", "status": None}])
    kept = {"b.jpg": ("edited", "a cat"), "c.jpg": ("edited", "by hand")}
    assert Corrections.read(path).decisions == kept and one.list() == other.list()

    reviewers = [CorrectionsFile(path) for _ in range(4)]  # at the same time
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda n: decide(reviewers[n % 4], f"{n}.jpg"), range(40)))
    assert len(one.list()) == 42


def test_corrections_are_written(few, tmp_path, batch, capsys) -> None:
    corrections, broken = tmp_path / "corrections.jsonl", few / "z.jpg"
    broken.write_bytes(b"")
    (few / "d.jpg").write_bytes(make_image(4, format="JPEG"))
    assert batch(few, "-o", few, "--format", "txt") == 1
    before = (few / "d.txt").read_text()
    decided = [
        {"image": "a.jpg", "caption": "a first try", "status": "edited"},
        {"image": "a.jpg", "caption": "as I said it", "status": "edited"},
        {"image": "b/c.jpg", "caption": "no", "status": "rejected"},
        {"image": "z.jpg", "caption": "a photo that is lost", "status": "edited"},
    ]
    corrections.write_text("".join(f"{json.dumps(one)}\n" for one in decided))
    flags = ("--format", "txt", "--corrections", corrections, "--suffix", "!")
    for _ in range(2):
        assert batch(few, "-o", few, *flags) == 0
        assert (few / "a.txt").read_text() == "as I said it\n"
        assert (few / "z.txt").read_text() == "a photo that is lost\n"
        assert not (few / "b" / "c.txt").exists()
        assert (few / "d.txt").read_text() == f"{before.strip()}!\n"
    assert batch(few, "-o", tmp_path / "out.jsonl", "--corrections", corrections) == 0
    records = {record["image"]: record for record in map(json.loads, (tmp_path / "out.jsonl").open())}
    assert records["a.jpg"]["caption"] == "as I said it" and records["b/c.jpg"]["error"]["code"] == "rejected"


def test_corrections_of_no_photo_are_counted(few, tmp_path, batch, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    corrections = tmp_path / "corrections.jsonl"
    decided = [{"image": name, "caption": "x", "status": "edited"} for name in ("a.jpg", "b/c.jpg", "no.jpg")]
    text = "".join(f"{json.dumps(one)}\n" for one in decided)
    corrections.write_text(text, encoding="utf-8-sig")  # as some editors save it
    assert batch(few, "-o", "out.csv", "--corrections", corrections) == 0
    assert "not used: 1 correction of no photo in the output, such as no.jpg\n" in capsys.readouterr().err
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "no.jpg").write_bytes(make_image(1, format="JPEG"))
    several = (few.name, "more", "-o", "several.csv", "--corrections", corrections)
    assert batch(*several) == 0
    assert "not used: 3 corrections of no photo in the output, such as a.jpg" in capsys.readouterr().err
    for one in decided:
        one["image"] = f"{'more' if one['image'] == 'no.jpg' else few.name}/{one['image']}"
    corrections.write_text("".join(f"{json.dumps(one)}\n" for one in decided))
    assert batch(*several) == 0
    assert "not used" not in capsys.readouterr().err


def test_decisions_that_are_not_used_are_mentioned(few, tmp_path, batch, capsys) -> None:
    place, out = few / "corrections.jsonl", tmp_path / "out.jsonl"
    said = f"captioner: {place} is there, with decisions; --corrections {place} uses it\n"
    assert batch(few, "-o", out) == 0
    assert "corrections" not in capsys.readouterr().err
    place.write_text(json.dumps({"image": "a.jpg", "caption": "my dog", "status": "edited"}))
    assert batch(few, "-o", out) == 0
    assert said in capsys.readouterr().err and "my dog" not in out.read_text()
    assert batch(few, "-o", out, "--quiet") == 0
    assert batch(few, "-o", out, "--corrections", place) == 0
    assert "is there" not in capsys.readouterr().err and "my dog" in out.read_text()
    shutil.move(place, tmp_path)  # beside the captions, where `captioner demo CAPTIONS.jsonl` keeps them
    assert main(["convert", str(out), "-o", str(tmp_path / "out.csv")]) == 0
    assert f"{tmp_path / place.name} is there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "[]",
        '{"image": "a"}',
        '{"image": "a", "caption": "b", "status": "c"}',
        '{"image": "a", "caption": " ", "status": "edited"}',
        '{"image": 1, "caption": "b", "status": "edited"}',
    ],
)
def test_corrections_that_are_none(line, few, tmp_path, batch, capsys) -> None:
    (tmp_path / "c.jsonl").write_text(f"\n{line}\n")
    assert batch(few, "-o", few, "--format", "txt", "--corrections", tmp_path / "c.jsonl") == 2
    assert f"{tmp_path / 'c.jsonl'}, line 2: " in capsys.readouterr().err


def test_a_corrected_caption_has_nothing_of_the_models(few, tmp_path, batch) -> None:
    corrections, out = tmp_path / "corrections.jsonl", tmp_path / "out.jsonl"
    assert batch(few, "-o", out, "--attention") == 0
    own = json.loads(out.read_text().splitlines()[1])
    decided = [
        {"image": "a.jpg", "caption": "as I said it", "status": "edited"},
        {"image": "b/c.jpg", "caption": own["caption"], "status": "approved"},
    ]
    corrections.write_text("".join(f"{json.dumps(one)}\n" for one in decided))
    page = tmp_path / "page.html"
    flags = ("--attention", "--corrections", corrections, "--gallery", page)
    assert batch(few, "-o", out, *flags) == 0
    edited, approved = map(json.loads, out.read_text().splitlines())
    assert edited["caption"] == "as I said it" and not edited.keys() & {"words", "log_prob", "confidence"}
    assert approved == own
    assert "as I said it" in (page.with_suffix(".files") / "index" / "0.js").read_text()
    assert "as I said it" in (page.with_suffix(".files") / "views" / "0.js").read_text()


@needs_exiftool
def test_keywords_with_what_they_are_kinds_of(few, tmp_path, batch) -> None:
    def read(name: str) -> list[object]:
        tags = ("-XMP-dc:Subject", "-XMP-lr:HierarchicalSubject", "-XMP-digiKam:TagsList")
        done = subprocess.run(["exiftool", "-j", *tags, few / name], capture_output=True, check=True)
        found = json.loads(done.stdout)[0]
        return [found.get(tag) for tag in ("Subject", "HierarchicalSubject", "TagsList")]

    def correct(caption: str) -> None:
        line = {"image": "a.jpg", "caption": caption, "status": "edited"}
        corrections.write_text(f"{json.dumps(line)}\n")
        assert batch(*flags, "--corrections", corrections) == 0

    corrections = tmp_path / "corrections.jsonl"
    flags = (few, "-o", few, "--format", "xmp", "--embed", "--keywords", "--hierarchy")
    correct("a dalmatian on a couch")
    words = ["dalmatian", "couch"]
    paths = ["animal/dog/dalmatian", "furniture/couch"]
    assert read("a.jpg") == [words, [path.replace("/", "|") for path in paths], paths]
    correct("a tiger in the grass")  # they go with their caption
    assert read("a.jpg")[2] == ["animal/tiger", "plant/grass"]


def test_a_file_of_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "c.jsonl").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(DataError, match="has 1099511627776 bytes, the limit is"):
        Corrections.read(tmp_path / "c.jsonl")


def test_decisions_are_kept_in_a_file_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # which nobody writes to
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(OutputError, match="it is no file, which could be read again"):
            CorrectionsFile(path)


def test_what_takes_the_place_of_decisions_is_neither_read_nor_written(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    reviewer = CorrectionsFile(path)
    os.mkfifo(tmp_path / "pipe")  # which nobody reads or writes to
    for lead in ("pipe", "/dev/zero", "c.jsonl"):
        path.symlink_to(lead)
        with pytest.raises(OutputError, match=r"cannot (keep|write)"):
            reviewer.change([{"image": "a.jpg", "caption": "a dog", "status": "edited"}])
        if lead != path.name:
            with pytest.raises(OutputError, match="cannot keep decisions in"):
                reviewer.list()
        path.unlink()


@pytest.mark.parametrize("how", SAVED)
def test_captions_changed_in_a_spreadsheet_are_corrections(tmp_path: Path, capsys, how: str) -> None:
    lines, table, out = tmp_path / "c.jsonl", tmp_path / "c.csv", tmp_path / "out.jsonl"
    own: list[dict[str, Any]] = [
        {"image": name, "caption": "a dog; on grass", "log_prob": -1.5, "confidence": 0.3, "model": "m@1"}
        for name in ("a.jpg", "b/c.jpg", "d.jpg")
    ]
    own.append({"image": "z.jpg", "error": {"code": "image_unreadable", "message": "the file is empty"}})
    lines.write_text("".join(f"{json.dumps(record)}\n" for record in own))
    flags = ("--prefix", "=1 ")
    assert main(["convert", str(lines), "-o", str(table), *flags]) == 1
    saved = resave(table, how, tmp_path / ("s.txt" if "text" in how else "s.csv"), _0="my dog; =1", _2="")
    flags += ("--min-confidence", "0.2", "--corrections", str(saved))
    assert main(["convert", str(lines), "-o", str(out), *flags]) == 1  # z.jpg
    edited, same, rejected, broken = map(json.loads, out.open())
    assert edited == {"image": "a.jpg", "caption": "my dog; =1", "model": "m@1"}
    assert same == own[1] | {"caption": "=1 a dog; on grass"} and broken == own[3]
    assert rejected["error"]["code"] == "rejected" and "not used" not in capsys.readouterr().err
    assert main(["search", str(lines), "my dog", "--corrections", str(saved)]) == 0
    assert capsys.readouterr().out.startswith("a.jpg\tmy dog; =1\n")


def test_captions_changed_in_json_lines_are_corrections(tmp_path: Path, capsys) -> None:
    lines, edited, out = tmp_path / "c.jsonl", tmp_path / "edited.jsonl", tmp_path / "out.jsonl"
    own: list[dict[str, Any]] = [
        {"image": f"{name}.jpg", "caption": "a dog", "log_prob": -1.5, "confidence": 0.3, "model": "m@1"}
        for name in "abcde"
    ]
    own.append({"image": "z.jpg", "error": {"code": "image_unreadable", "message": "the file is empty"}})
    lines.write_text("".join(f"{json.dumps(record)}\n" for record in own))
    no_longer = {"image": "d.jpg", "error": {"code": "rejected", "message": "rejected by a person"}}
    theirs = [own[0] | {"caption": "my dog"}, own[1], own[2] | {"caption": " "}, no_longer]
    theirs += [{"image": "e.jpg", "caption": "a cat", "status": "edited"}, own[5]]
    edited.write_text("".join(f"{json.dumps(record)}\n" for record in theirs))
    assert main(["convert", str(lines), "-o", str(out), "--corrections", str(edited)]) == 1  # z.jpg
    changed, same, empty, rejected, decided, broken = map(json.loads, out.open())
    assert changed == {"image": "a.jpg", "caption": "my dog", "model": "m@1"}
    assert (same, broken, rejected) == (own[1], own[5], no_longer)
    assert empty["error"]["code"] == "rejected" and decided["caption"] == "a cat"
    assert "not used" not in capsys.readouterr().err
    with pytest.raises(DataError, match="line 1: not a line"):  # a gallery would replace them
        CorrectionsFile(edited)
    for record in (own[0] | {"caption": None}, {"image": "a.jpg", "caption": "a dog"}):
        edited.write_text(json.dumps(record))
        with pytest.raises(DataError, match="line 1: not a line"):
            Corrections.read(edited)


def test_the_table_of_a_batch_corrects_the_next(few, tmp_path, batch, capsys) -> None:
    table, out = tmp_path / "captions.csv", tmp_path / "out.jsonl"
    assert batch(few, "-o", table, "--style", "alt") == 0
    saved = resave(table, "Excel in Germany, CSV UTF-8", tmp_path / "saved.csv", _0="My own dog")
    page = tmp_path / "page.html"
    flags = ("--attention", "--gallery", page, "--style", "alt", "--corrections", saved)
    assert batch(few, "-o", out, *flags) == 0
    edited, same = map(json.loads, out.open())
    assert edited["caption"] == "My own dog" and not edited.keys() & {"words", "log_prob", "confidence"}
    assert same["words"] and same["caption"].endswith(".") and "not used" not in capsys.readouterr().err
    assert batch(few, "-o", saved, "--corrections", saved) == 2  # it is not replaced
    assert (
        main(["gallery", str(out), "-o", str(page), "--images", str(few), "--corrections", str(saved)]) == 0
    )
    assert "My own dog" in (page.with_suffix(".files") / "index" / "0.js").read_text()


def test_a_caption_is_the_same_with_other_accents_and_spaces(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("image,caption\ncafe\u0301.jpg,a  cafe\u0301\n", encoding="utf-8")
    record = {"image": "caf\u00e9.jpg", "caption": "a caf\u00e9", "log_prob": -1.0}
    corrections = Corrections.read(tmp_path / "c.csv")
    corrections.match([record["image"]])
    assert corrections.decide(record, dict) is None and not corrections.unmatched
    lines = Corrections.read(write(tmp_path / "c.jsonl", record["image"], "a cafe\u0301"))
    assert lines.decide(record, dict) == record | {"caption": "a cafe\u0301"}  # it has its probability


def test_a_row_of_a_failed_photo_says_nothing_of_a_later_caption(tmp_path: Path) -> None:
    path, record = tmp_path / "c.csv", {"image": "a.jpg", "caption": "a dog"}
    path.write_text("image,caption,error_code\na.jpg,,image_unreadable\n")
    assert Corrections.read(path).decide(record, dict) is None
    path.write_text("image,caption,error_code\na.jpg,,rejected\n")
    decided = Corrections.read(path).decide(record, dict)
    assert decided and decided["error"]["code"] == "rejected"
    failed = {"image": "a.jpg", "error": {"code": "image_unreadable", "message": "no"}}
    path.write_text("image,caption\na.jpg,\n")
    assert Corrections.read(path).decide(failed, dict) is None
    path.write_text("image,caption,error_code\na.jpg,a cat,image_unreadable\n")
    assert Corrections.read(path).decide(failed, dict) == {"image": "a.jpg", "caption": "a cat"}


def test_numbers_that_a_spreadsheet_has_changed_do_not_matter_for_corrections(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("image,caption,log_prob\na.jpg,a cat,06. Mar\n")
    decided = Corrections.read(tmp_path / "c.csv").decide({"image": "a.jpg", "caption": "a dog"}, dict)
    assert decided == {"image": "a.jpg", "caption": "a cat"}


def test_a_table_is_not_written_by_a_gallery(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("image,caption\na.jpg,a cat\n")
    with pytest.raises(DataError, match="line 1: not a line"):
        CorrectionsFile(path)
    assert path.read_text().startswith("image,caption")
    path.write_text("image,caption\na.jpg,a cat\na.jpg,a dog\n")
    with pytest.raises(DataError, match=r"line 3: a second row of a\.jpg"):
        Corrections.read(path)
