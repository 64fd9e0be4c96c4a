"""Every format, read back by the programs that people read it with."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.serving import make_image, serve

from captioner import Captioner
from captioner.cli.main import main
from captioner.folder.state import State
from captioner.folder.text import TextOptions
from captioner.model.detection import Detection
from captioner.results import Caption
from captioner.words.keywords import keywords_of


@pytest.fixture
def records(photos: Path, tmp_path: Path, batch) -> list[dict]:
    """What JSON Lines have, with maps and alternatives."""
    out = tmp_path / "expected.jsonl"
    assert batch(photos, "-o", out, "--attention", "--alternatives", "2") == 1
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_json_lines_are_the_records_of_the_library(records, photos, tiny_captioner) -> None:
    from captioner.options import CaptionOptions

    good = [record for record in records if "error" not in record]
    first = Caption.from_dict(good[0])
    [expected] = tiny_captioner.caption([photos / good[0]["image"]], CaptionOptions(alternatives=2))
    assert first.text == expected.text and first.model == tiny_captioner.model
    assert np.allclose(first.words[0].attention, expected.words[0].attention, atol=1e-5)
    assert len(first.alternatives) == 2


def test_csv_has_a_row_for_each_photo_with_the_code_of_its_error(records, photos, tmp_path, batch) -> None:
    out = tmp_path / "out.csv"
    assert batch(photos, "-o", out) == 1
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == [record["image"] for record in records]
    assert [row["error_code"] for row in rows] == [r.get("error", {}).get("code", "") for r in records]
    assert not list(tmp_path.glob("*.partial"))


def test_parquet_holds_words_with_their_maps(records, photos, tmp_path, batch) -> None:
    parquet, duckdb = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("duckdb")
    out = tmp_path / "out.parquet"
    assert batch(photos, "-o", out, "--attention", "--alternatives", "2") == 1
    table = parquet.read_table(out)
    assert table.schema.metadata[b"rows"] == b"4" and table.schema.metadata[b"columns"] == b"4"
    rows = table.to_pylist()
    assert [row["caption"] for row in rows] == [record.get("caption") for record in records]
    assert rows[0]["words"] is None  # broken.jpg
    expected = Caption.from_dict(records[1]).words
    assert str(table.schema.field("words").type.value_type.field("attention").type).startswith("fixed_size")
    maps = [np.reshape(word["attention"], (4, 4)) for word in rows[1]["words"]]
    assert all(np.allclose(a, b.attention) for a, b in zip(maps, expected, strict=True))
    query = f"SELECT count(*), sum(len(words)), count(error_code) FROM '{out}'"
    words = sum(len(record.get("words", ())) for record in records)
    assert duckdb.sql(query).fetchall() == [(90, words, 1)]


def test_parquet_of_maps_that_differ_from_photo_to_photo(tmp_path, letterboxed_bundle) -> None:
    """A model that letterboxes: what is read back is what JSON Lines have."""
    parquet = pytest.importorskip("pyarrow.parquet")
    sizes = {(300, 75): (1, 4), (60, 240): (4, 1), (64, 64): (4, 4)}
    (tmp_path / "photos").mkdir()
    for number, size in enumerate(sizes):
        (tmp_path / "photos" / f"{number}.png").write_bytes(make_image(number, size))
    (tmp_path / "photos" / "9.png").write_bytes(b"no photo")

    def write(name: str, *flags: str) -> Path:
        out = tmp_path / name
        model = ["--model", str(letterboxed_bundle), "--device", "cpu", "--threads", "1"]
        command = ["batch", str(tmp_path / "photos"), "-o", str(out), "--attention"]
        assert main([*command, *flags, *model]) == 1
        return out

    records = [json.loads(line) for line in write("out.jsonl").read_text().splitlines()]
    table = parquet.read_table(write("out.parquet"))
    assert not table.schema.metadata or b"rows" not in table.schema.metadata
    rows = table.to_pylist()
    assert [(row["rows"], row["columns"]) for row in rows] == [*sizes.values(), (None, None)]
    for row, record in zip(rows[:-1], records, strict=False):
        for word, expected in zip(row["words"], record["words"], strict=True):
            shape = row["rows"], row["columns"]
            np.testing.assert_allclose(np.reshape(word["attention"], shape), expected["attention"], rtol=1e-6)
    alike = parquet.read_table(write("alike.parquet", "--attention-size", "3x5"))
    assert (alike.schema.metadata[b"rows"], alike.schema.metadata[b"columns"]) == (b"3", b"5")


def test_coco_has_ids_from_names_which_must_differ(photos, tmp_path, batch, capsys) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    assert batch(photos, "--exclude", "broken*", "-o", tmp_path / "o.json", "--format", "coco") == 2
    messages = capsys.readouterr().err
    assert "have the same COCO id" in messages and "images/s" not in messages  # before the work, not after it
    out = tmp_path / "results.json"
    assert batch(photos / "day0", "-o", out, "--format", "coco") == 0
    images = [{"id": number, "file_name": f"{number:03}.png"} for number in range(30)]
    annotations = [{"id": n, "image_id": n, "caption": "a thing"} for n in range(30)]
    truth = tmp_path / "truth.json"
    truth.write_text(
        json.dumps({"images": images, "annotations": annotations, "info": {}, "licenses": []}), "utf-8"
    )
    results = coco.COCO(str(truth)).loadRes(str(out))
    assert len(results.getAnnIds()) == 30
    assert (
        batch(photos / "day0", "-o", tmp_path / "by-file.json", "--format", "coco", "--coco-ids", truth) == 0
    )
    assert (tmp_path / "by-file.json").read_text() == out.read_text()


def test_sidecars_in_a_tree_and_beside(records, photos, tmp_path, batch) -> None:
    tree = tmp_path / "tree"
    assert batch(photos, "-o", tree, "--format", "txt", "--sentence") == 1
    for record in records:
        target = tree / Path(record["image"]).with_suffix(".txt")
        if "error" in record:
            assert not target.exists()
        else:
            assert target.read_text() == TextOptions(sentence=True).apply(record["caption"], "") + "\n"
    assert batch(photos, "-o", photos, "--format", "caption") == 1
    assert (photos / "day0" / "000.caption").is_file()
    before = {path: path.stat().st_mtime_ns for path in photos.rglob("*.caption")}
    assert batch(photos, "-o", photos, "--format", "caption") == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before and len(before) == 89


def test_sidecars_of_others_are_kept(tmp_path, batch) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    for name in ("a.png", "a.jpg", "b.png", "c.png"):
        (root / name).write_bytes(make_image(len(name)))
    (root / "b.txt").write_text("written by hand")
    assert batch(root, "-o", root, "--format", "txt") == 0
    assert (root / "b.txt").read_text() == "written by hand"
    assert (root / "a.txt").is_file() and (root / "a.png.txt").is_file()
    (root / "c.txt").unlink()
    (root / "a.txt").write_text("corrected")
    assert batch(root, "-o", root, "--format", "txt", "--prefix", "now ") == 0
    assert (root / "a.txt").read_text() == "corrected"
    assert (root / "a.png.txt").read_text().startswith("now ")
    assert (root / "c.txt").read_text().startswith("now ")
    assert batch(root, "-o", root, "--format", "txt", "--replace-existing") == 0
    assert (root / "b.txt").read_text() != "written by hand"


needs_exiftool = pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs the program exiftool")


def read_tags(path: Path) -> dict[str, str]:
    done = subprocess.run(["exiftool", "-j", "-G1", "-n", path], capture_output=True, check=True)
    tags: dict[str, str] = json.loads(done.stdout)[0]
    return tags


@pytest.fixture
def few(tmp_path: Path) -> Path:
    root = tmp_path / "few"
    root.mkdir()
    for name, format in (("a.jpg", "JPEG"), ("b.png", "PNG"), ("c.webp", "WEBP"), ("d.tif", "TIFF")):
        (root / name).write_bytes(make_image(len(name), format=format))
    return root


@needs_exiftool
def test_xmp_sidecars(few, tmp_path, batch) -> None:
    out = tmp_path / "xmp"
    out.mkdir()
    theirs = out / "b.png.xmp"
    subprocess.run(
        ["exiftool", "-q", "-XMP-dc:Description=by hand", "-XMP-dc:Creator=me", theirs], check=True
    )
    for _ in range(2):
        assert batch(few, "-o", out, "--format", "xmp") == 0
        tags = read_tags(out / "a.jpg.xmp")
        assert tags["XMP-dc:Description"] == tags["XMP-iptcCore:AltTextAccessibility"] != ""
        kept = read_tags(theirs)
        assert kept["XMP-dc:Description"] == "by hand" and kept["XMP-dc:Creator"] == "me"
        assert kept["XMP-iptcCore:AltTextAccessibility"]
    assert batch(few, "-o", out, "--format", "xmp", "--suffix", "!") == 0
    assert read_tags(out / "a.jpg.xmp")["XMP-dc:Description"].endswith("!")
    assert read_tags(theirs)["XMP-dc:Description"] == "by hand"


@needs_exiftool
def test_embedding_keeps_the_rest_of_the_file(few, tmp_path, batch, monkeypatch) -> None:
    subprocess.run(
        [
            *["exiftool", "-q", "-overwrite_original", "-EXIF:Artist=me", "-IPTC:Caption-Abstract=old"],
            few / "a.jpg",
        ],
        check=True,
    )
    pixels = {path.name: np.asarray(Image.open(path)).tobytes() for path in few.iterdir()}
    scan = (few / "a.jpg").read_bytes().partition(b"\xff\xda")[2]
    times = {path.name: path.stat().st_mtime for path in few.glob("*.*") if not path.name.startswith(".")}
    for _ in range(2):
        assert batch(few, "-o", few, "--format", "xmp", "--embed") == 0
    for path in few.glob("[a-d].*"):
        tags = read_tags(path)
        assert tags["XMP-iptcCore:AltTextAccessibility"]
        assert ("XMP-dc:Description" in tags) == (path.name != "a.jpg")
        assert np.asarray(Image.open(path)).tobytes() == pixels[path.name]
        assert path.stat().st_mtime == pytest.approx(times[path.name], abs=1)
    assert read_tags(few / "a.jpg")["IFD0:Artist"] == "me"
    assert (few / "a.jpg").read_bytes().partition(b"\xff\xda")[2] == scan
    captioned = []
    monkeypatch.setattr("captioner.captioner.Captioner.caption_pixels", lambda *_: captioned.append(1))
    assert batch(few, "-o", few, "--format", "xmp", "--embed") == 0
    assert captioned == []


@needs_exiftool
def test_keywords_are_written_where_there_are_none(few, tmp_path, batch) -> None:
    for number, tag in enumerate(("XMP-dc:Subject", "IPTC:Keywords", "IFD0:XPKeywords")):
        photo = few / f"theirs{number}.jpg"
        photo.write_bytes(make_image(number, format="JPEG"))
        subprocess.run(["exiftool", "-q", "-overwrite_original", f"-{tag}=mine", photo], check=True)
    flags = ("--format", "xmp", "--embed", "--keywords", "--style", "alt")
    for _ in range(2):
        assert batch(few, "-o", few, *flags) == 0
        tags = read_tags(few / "a.jpg")
        assert tags["XMP-dc:Description"].endswith(".") and tags["XMP-dc:Description"][0].isupper()
        expected = keywords_of(tags["XMP-dc:Description"])
        assert expected and np.atleast_1d(tags["XMP-dc:Subject"]).tolist() == expected
        assert read_tags(few / "theirs0.jpg")["XMP-dc:Subject"] == "mine"
        assert not any("XMP-dc:Subject" in read_tags(few / f"theirs{number}.jpg") for number in (1, 2))
    assert batch(few, "-o", tmp_path / "out.parquet", "--keywords") == 2


@needs_exiftool
def test_xmp_has_no_keywords_that_the_photo_does_not_support(few, batch, monkeypatch) -> None:
    monkeypatch.setattr(Detection, "keywords", lambda *_: ())
    assert batch(few, "-o", few, "--format", "jsonl,xmp", "--keywords", "--style", "alt") == 0
    tags = read_tags(few / "a.jpg.xmp")
    assert keywords_of(tags["XMP-dc:Description"]) and "XMP-dc:Subject" not in tags
    assert json.loads((few / "captions.jsonl").read_text().splitlines()[0])["keywords"] == []


def test_captions_below_the_minimum_are_left_out_and_counted(photos, tmp_path, calibrated, capsys) -> None:
    arguments = ["batch", str(photos / "day0"), "--model", str(calibrated), "--device", "cpu", "-o"]
    for _ in range(2):  # the second run has nothing left to caption, and still says what is missing
        assert main([*arguments, str(tmp_path / "out.csv"), "--min-confidence", "0.999"]) == 0
        errors = capsys.readouterr().err
        assert "is below 0.999" not in errors
        assert "30 in all, 0 of them failed, 30 left out (confidence below --min-confidence)" in errors


def test_confidence_leaves_out_what_is_not_believed(photos, tmp_path, calibrated, capsys) -> None:
    bundle = calibrated
    arguments = ["batch", str(photos), "--model", str(bundle), "--device", "cpu", "-o"]
    assert main([*arguments, str(tmp_path / "all.jsonl"), "--min-confidence", "0"]) == 1
    every = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    values = sorted(record["confidence"] for record in every if "caption" in record)
    assert 0 <= values[0] < values[-1] <= 1
    limit = str((values[0] + values[-1]) / 2)
    assert main([*arguments, str(tmp_path / "some.jsonl"), "--min-confidence", limit]) == 1
    some = [json.loads(line) for line in (tmp_path / "some.jsonl").read_text().splitlines()]
    left_out = [r["image"] for r in some if r.get("error", {}).get("code") == "low_confidence"]
    assert left_out == [r["image"] for r in every if r.get("confidence", 1) < float(limit)] != []

    with serve(Captioner.load(bundle, device="cpu", threads=1)) as server:
        remote = ["batch", str(photos), "--server", server.address, "-o", str(tmp_path / "remote.jsonl")]
        assert main([*remote, "--min-confidence", limit]) == 1
    lines = (tmp_path / "remote.jsonl").read_text().splitlines()
    served = {record["image"]: record for record in map(json.loads, lines)}
    assert set(served) == {record["image"] for record in some}
    for record in some:
        expected = pytest.approx(record.get("confidence"), abs=2e-4)  # it is rounded
        assert served[record["image"]].get("confidence") == expected


def test_a_missing_folder_is_named_before_the_work(photos, tmp_path, batch, capsys) -> None:
    for name in ("c.jsonl", "c.csv"):
        assert batch(photos, "-o", tmp_path / "no" / name) == 2
        assert "there is no folder" in (message := capsys.readouterr().err) and ".state" not in message


def test_a_missing_package_is_named_before_the_work(photos, tmp_path, batch, capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("captioner.captioner.Captioner.caption_pixels", lambda *_: pytest.fail("it began"))
    assert batch(photos, "-o", tmp_path / "out.parquet") == 2
    assert "pip install '.[parquet]'" in capsys.readouterr().err


def test_a_gallery_that_cannot_be_is_refused_before_the_work(photos, tmp_path, batch, capsys) -> None:
    out = tmp_path / "out.jsonl"
    assert batch(photos, "-o", out, "--attention", "--gallery", tmp_path / "page.txt") == 2
    assert "a gallery is an .html file" in capsys.readouterr().err and not out.exists()


def test_coco_ids_come_from_files_without_captions(tmp_path, batch, capsys) -> None:
    truth, out, root = tmp_path / "info.json", tmp_path / "out.json", tmp_path / "photos"
    root.mkdir()
    (root / "dog.jpg").write_bytes(make_image(1, format="JPEG"))
    flags = ("-o", out, "--format", "coco", "--coco-ids", truth)
    truth.write_text(json.dumps({"images": [{"id": 7, "file_name": "dog.jpg"}], "licenses": []}))
    assert batch(root, *flags) == 0
    assert json.loads(out.read_text())[0]["image_id"] == 7
    for images, message in (
        ([], "no image has a COCO id"),
        ([{"id": 7}], "an entry has no file_name"),
        ([{"id": 7, "file_name": 7}], "a value of the wrong type"),
        (
            [{"id": 7, "file_name": name} for name in ("dog.jpg", "b.jpg")],
            "dog.jpg and b.jpg have the same id",
        ),
        ([{"id": n, "file_name": "dog.jpg"} for n in (7, 8)], "dog.jpg has two ids, 7 and 8"),
    ):
        truth.write_text(json.dumps({"images": images}))
        assert batch(root, *flags) == 2
        assert message in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
@pytest.mark.parametrize("several", [False, True])
def test_the_state_has_no_more_rights_than_the_output(several, few, tmp_path, batch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    private, state = out / "captions.jsonl", out / (".captioner.state" if several else "captions.jsonl.state")
    place = (out, "--format", "jsonl,csv") if several else (private,)
    before = os.umask(0o022)
    try:
        assert batch(few, "-o", *place) == 0
        assert state.stat().st_mode & 0o777 == 0o644
        private.chmod(0o600)
        for name in (f"{state.name}-wal", f"{state.name}-journal"):
            state.with_name(name).touch()  # as a killed run leaves it
        assert batch(few, "-o", *place) == 0
        assert {path.stat().st_mode & 0o777 for path in out.glob("*.state*")} == {0o600}
        state.unlink()
        assert batch(few, "-o", *place, "--overwrite") == 0
        assert state.stat().st_mode & 0o777 == private.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_log_of_a_private_state_is_private(tmp_path) -> None:
    output, path = tmp_path / "o.csv", tmp_path / "o.csv.state"
    output.touch(0o600)
    path.with_name("o.csv.state-wal").touch(0o644)
    with State(path, "", outputs=[output]) as state:
        state.set("key", "value")
        assert {one.stat().st_mode & 0o777 for one in tmp_path.iterdir()} == {0o600}


def test_what_cannot_be_read_has_no_coco_id(tmp_path, batch, capsys) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    (root / "1.jpg").write_bytes(make_image(1, format="JPEG"))
    (root / "lost.jpg").symlink_to("1.png")
    assert batch(root, "-o", tmp_path / "out.json", "--format", "coco") == 1
    assert "lost.jpg: a link to a file that is not there" in capsys.readouterr().err
    assert [record["image_id"] for record in json.loads((tmp_path / "out.json").read_text())] == [1]


@pytest.mark.parametrize(("format", "name"), [("csv", "captions.csv"), ("coco", "captions.coco.json")])
def test_a_folder_holds_one_table_as_it_holds_several(photos, tmp_path, batch, capsys, format, name) -> None:
    there, slash, alone = tmp_path / "there", f"{tmp_path}/new/out/", tmp_path / name
    there.mkdir()
    for out in (there, slash, slash, alone):
        assert batch(photos / "day0", "-o", out, "--format", format) == 0
    assert "are done already" in capsys.readouterr().err
    assert {(Path(out) / name).read_text() for out in (there, slash)} == {alone.read_text()}


def test_a_folder_without_a_format_gets_text_files(photos, tmp_path, batch) -> None:
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "there", f"{tmp_path}/new/"):
        assert batch(photos / "day0", "-o", out) == 0
        assert {path.suffix for path in Path(out).iterdir()} == {".txt", ".state"}


def test_coco_ids_of_equal_file_names(tmp_path, batch, capsys) -> None:
    images = [{"id": 11, "file_name": "dogs/1.jpg"}, {"id": 22, "file_name": "cats/1.jpg"}]
    truth, out, root = tmp_path / "truth.json", tmp_path / "out.json", tmp_path / "photos"
    annotations = [{"id": n, "image_id": n, "caption": "a thing"} for n in (11, 22)]
    truth.write_text(json.dumps({"images": images, "annotations": annotations}))
    for name in ("dogs", "cats"):
        (root / name).mkdir(parents=True)
        (root / name / "1.jpg").write_bytes(make_image(1, format="JPEG"))
    flags = ("--format", "coco", "--coco-ids", truth)
    assert batch(root, "-o", out, *flags) == 0
    assert [record["image_id"] for record in json.loads(out.read_text())] == [22, 11]
    assert batch(root / "dogs", "-o", tmp_path / "alone.json", *flags) == 2
    assert "the file of --coco-ids has several images 1, but no 1.jpg" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [(), ("--retry-failed",)])
def test_a_file_that_could_not_be_rewritten_is_kept_and_tried_again(tmp_path, batch, flags, capsys) -> None:
    root, out = tmp_path / "photos", tmp_path / "out"
    root.mkdir()
    (root / "a.jpg").write_bytes(make_image(1, format="JPEG"))
    batch_it = (root, "-o", out, "--format", "txt")
    assert batch(*batch_it) == 0
    before = (out / "a.txt").read_text()
    (out / "a.txt").chmod(0o444)
    assert batch(*batch_it, "--prefix", "now ") == 1
    assert batch(*batch_it, "--prefix", "now ") == 1
    assert (out / "a.txt").read_text() == before
    (out / "a.txt").chmod(0o644)
    capsys.readouterr()
    assert batch(*batch_it, "--prefix", "now ", *flags) == 0
    assert (out / "a.txt").read_text() == f"now {before}"
    assert "captioner: a.jpg" not in capsys.readouterr().err
