"""Names of photos and outputs: not UTF-8, of network drives, for spreadsheets, as ids of COCO."""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path

import pytest
from support.serving import make_image

from captioner.cli.commands.batch.progress import FIRST_BATCH_S, Pace
from captioner.cli.main import main
from captioner.folder.outputs.place import beside

LATIN = os.fsdecode(b"lat\xe9.jpg")
needs_bytes = pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")


def fill(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(make_image(number, format="JPEG"))
    return root


@needs_bytes
def test_names_that_are_not_utf8_are_text_that_others_can_read(tmp_path, batch) -> None:
    root = fill(tmp_path / "photos", "b.jpg", LATIN, "🐈.jpg")
    lines, table = tmp_path / "c.jsonl", tmp_path / "c.csv"
    for template in ("{caption}", "{name}"):
        for out in (lines, table):
            assert batch(root, "-o", out, "--template", template) == 0
        records = [json.loads(line) for line in lines.read_text().splitlines()]
        json.dumps(records, ensure_ascii=False).encode()
        odd = records[1]
        assert odd["image"] == "lat\\udce9.jpg" and odd["image_bytes"] == "bGF06S5qcGc="
        assert not records[0].keys() & {"image_bytes"} and records[2]["image"] == "🐈.jpg"
        with table.open(encoding="utf-8", newline="") as file:
            assert [row["image"] for row in csv.DictReader(file)] == [one["image"] for one in records]
    duckdb = pytest.importorskip("duckdb")
    assert duckdb.sql(f"select count(*) from read_json_auto('{lines}')").fetchall() == [(3,)]
    assert duckdb.sql(f"select count(*) from read_csv_auto('{table}')").fetchall() == [(3,)]


@needs_bytes
def test_the_photo_of_such_a_name_is_found_again(tmp_path, batch, tiny_bundle, capsys) -> None:
    root, out = fill(tmp_path / "photos", LATIN), tmp_path / "c.jsonl"
    assert batch(root, "-o", out, "--attention") == 0
    assert main(["gallery", str(out), "--images", str(root), "-o", str(tmp_path / "page.html")]) == 0
    record = json.loads(out.read_text())
    (tmp_path / "decisions").write_text(json.dumps({**record, "caption": "mine", "status": "edited"}))
    assert batch(root, "-o", out, "--corrections", tmp_path / "decisions") == 0
    assert json.loads(out.read_text())["caption"] == "mine"
    capsys.readouterr()
    assert main(["caption", "--json", str(root / LATIN), "--model", str(tiny_bundle), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.encode().decode("ascii").count("\\\\udce9") == 1


def test_folders_of_thumbnails_and_trash_are_skipped(tmp_path, batch) -> None:
    odd = ["@eaDir/a.jpg/SYNOPHOTO_THUMB_XL.jpg", "#recycle/b.jpg", "$RECYCLE.BIN/c.jpg", "x.lrdata/d.jpg"]
    odd += ["files_versions/e.jpg", "appdata_oc1ab/preview/f.jpg", "~snapshot/hourly.0/g.jpg"]
    odd += [
        "@__thumb/h.jpg",
        "RECYCLED/i.jpg",
        "x.lrcat-data/j.jpg",
        "y.photoslibrary/resources/derivatives/k.jpg",
    ]
    own = ["a.jpg", "#party/e.jpg", "b@home.jpg", "y.photoslibrary/originals/z.jpg", "derivatives/z.jpg"]
    root = fill(tmp_path / "photos", *own, *odd)
    for flags in ((), ("--hidden",)):
        assert batch(root, "-o", tmp_path / "c.csv", "--overwrite", *flags) == 0
        with (tmp_path / "c.csv").open(newline="") as file:
            names = {row["image"].removeprefix("./") for row in csv.DictReader(file)}
        assert names == {*own, *[name for name in odd if flags]}


def test_names_are_found_however_their_accents_are_composed(tmp_path, batch) -> None:
    composed, decomposed = "caf\u00e9.jpg", "cafe\u0301.jpg"  # the disk of a Mac has the second
    root, out = fill(tmp_path / "photos", decomposed, "b.jpg"), tmp_path / "c.jsonl"

    def captioned(*flags: str) -> list[str]:
        assert batch(root, "-o", out, "--overwrite", *flags) == 0
        return [json.loads(line)["image"] for line in out.read_text().splitlines()]

    assert captioned("--pattern", "caf\u00e9*") == [decomposed]
    assert captioned("--exclude", "caf\u00e9*") == ["b.jpg"]
    (tmp_path / "list").write_text(f"{composed}\n")
    assert captioned("--files-from", str(tmp_path / "list")) == [decomposed]


def test_a_list_may_be_from_windows(tmp_path, batch) -> None:
    root, out = fill(tmp_path / "photos", "day 1/a.jpg", "b\\c.jpg"), tmp_path / "c.jsonl"
    (tmp_path / "list").write_text("day 1\\a.jpg\r\nb\\c.jpg\r\n")
    assert batch(root, "-o", out, "--files-from", tmp_path / "list") == 0
    assert [json.loads(line)["image"] for line in out.read_text().splitlines()] == ["day 1/a.jpg", "b\\c.jpg"]


def test_coco_ids_by_order_and_their_map(tmp_path, batch, capsys) -> None:
    root, out = fill(tmp_path / "photos", "cat.jpg", "dog12.jpg", "z.jpg"), tmp_path / "c.json"
    (root / "broken.jpg").write_bytes(b"")
    for _ in range(2):
        assert batch(root, "-o", out, "--format", "coco") == 1
        assert [one["image_id"] for one in json.loads(out.read_text())] == [2, 3, 4]
        images = json.loads((tmp_path / "c.json.images.json").read_text())["images"]
        assert images[1:3] == [{"id": 2, "file_name": "cat.jpg"}, {"id": 3, "file_name": "dog12.jpg"}]
    other = tmp_path / "same.json"
    assert batch(root, "-o", other, "--format", "coco", "--coco-ids", tmp_path / "c.json.images.json") == 1
    assert json.loads(other.read_text()) == json.loads(out.read_text())
    (tmp_path / "d.json.images.json").write_text("mine")
    assert batch(root, "-o", tmp_path / "d.json", "--format", "coco") == 2
    assert "d.json.images.json is there already" in capsys.readouterr().err


def test_a_run_that_did_nothing_leaves_no_state(tmp_path, batch, capsys) -> None:
    root, out = fill(tmp_path / "photos", "a/1.jpg", "b/1.jpg"), tmp_path / "out.json"
    (tmp_path / "empty").mkdir()
    assert batch(tmp_path / "empty", "-o", tmp_path / "z.jsonl") == batch(root, "-o", out) == 2
    assert "a/1.jpg and b/1.jpg have the same COCO id 1" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "photos"]
    assert batch(root / "a", "-o", out) == 0
    state = out.with_name("out.json.state").read_bytes()
    (root / "a" / "1.jpg").unlink()
    assert batch(root / "a", "-o", out) == 2  # what an earlier run did is kept
    assert out.with_name("out.json.state").read_bytes()[:100] == state[:100] and out.is_file()


@pytest.mark.parametrize("number", ["9007199254740992", "123456789012345678901", "1" * 200])
def test_numbers_that_are_no_ids_are_refused(tmp_path, batch, capsys, number) -> None:
    root, out = fill(tmp_path / "photos", f"{number}.jpg", "day/1.jpg"), tmp_path / "c.json"
    assert batch(root, "-o", out, "--format", "coco") == 2
    assert "too large for a COCO id; --coco-ids order counts" in capsys.readouterr().err
    assert batch(root, "-o", out, "--format", "coco", "--coco-ids", "order") == 0
    assert [one["image_id"] for one in json.loads(out.read_text())] == [1, 2]


def test_csv_for_excel(tmp_path, batch, capsys) -> None:
    root, out = fill(tmp_path / "photos", "ünï.jpg"), tmp_path / "c.csv"
    for flags, start in (((), b"image,"), (("--excel",), b"\xef\xbb\xbfimage,")):
        assert batch(root, "-o", out, *flags) == 0
        assert out.read_bytes().startswith(start) and "ünï.jpg" in out.read_text(encoding="utf-8-sig")
    assert batch(root, "-o", tmp_path / "c.jsonl", "--excel") == 2
    assert "--excel is for csv" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="names that other systems do not have")
def test_csv_has_no_cells_that_are_formulas(tmp_path, batch) -> None:
    root, out = tmp_path / "photos", tmp_path / "out.csv"
    root.mkdir()
    names = ['=HYPERLINK("x").jpg', "+1.jpg", "-2+3.jpg", "@SUM(1).jpg", "\t=1.jpg", "\uff1d1.jpg", "a=1.jpg"]
    for number, name in enumerate(names):
        (root / name).write_bytes(make_image(number, format="JPEG"))
    (root / "broken.jpg").write_bytes(b"")
    assert batch(root, "-o", out, "--prefix", "=1+") == 1
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert all((root / row["image"]).is_file() for row in rows)
    assert not any(
        row[name].startswith(tuple("=+-@\t\r\uff1d")) for row in rows for name in ("image", "caption")
    )
    assert all(float(row["log_prob"]) < 0 for row in rows if row["caption"])
    assert {row["caption"][:4] for row in rows} == {"", "'=1+"}


@pytest.mark.skipif(os.name != "posix", reason="names that other systems do not have")
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_has_no_formulas_where_semicolons_or_tabs_divide_lines(delimiter, tmp_path, batch) -> None:
    root, out = tmp_path / "photos", tmp_path / "out.csv"
    root.mkdir()
    names = ["x;=1+1;.jpg", "x\t=1+1\t.jpg", 'x";=1;.jpg', "x\n=1.jpg", "x;y.jpg"]
    for number, name in enumerate(names):
        (root / name).write_bytes(make_image(number, format="JPEG"))
    assert batch(root, "-o", out, "--suffix", ";=1+1;-a\t@b") == 0
    with out.open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file, delimiter=delimiter) for cell in row]
    assert not any(cell.startswith(tuple("=+-@\t\r\uff1d")) and not is_number(cell) for cell in cells)
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["image"] for row in rows) == sorted(names)
    assert all(row["caption"].endswith(";'=1+1;'-a\t'@b") for row in rows)


def is_number(cell: str) -> bool:
    try:
        return isinstance(float(cell), float)
    except ValueError:
        return False


@pytest.mark.parametrize("format", ["txt", "caption", "xmp"])
def test_a_name_of_a_file_is_no_folder_of_sidecars(tmp_path, batch, capsys, format) -> None:
    root = fill(tmp_path / "photos", "a.jpg")
    assert batch(root, "-o", tmp_path / f"x.{format}") == 2
    assert f"{format} writes a file for each photo, not x.{format}" in capsys.readouterr().err
    assert not (tmp_path / f"x.{format}").exists()


def test_the_pace_leaves_the_start_out() -> None:
    pace, now = Pace(), 100.0  # the time that models take to load
    assert pace.rate(now) == 0.0
    for batch in range(3):
        now += 0.5
        for _ in range(32):
            pace.add(now)
            now += FIRST_BATCH_S / 100
        if batch == 0:
            assert pace.rate(now) == 0.0
    assert pace.rate(now) == pytest.approx(64, rel=0.1)


@pytest.mark.skipif(os.name != "posix", reason="names of 255 bytes")
def test_long_names_have_room_for_a_suffix(tmp_path) -> None:
    for name in ("x" * 255, "é" * 127):
        path = beside(tmp_path / name, ".state")
        path.with_name(f"{path.name}-journal").touch()
        assert path.suffix == ".state" and path != beside(tmp_path / f"{name[:-1]}y", ".state")
    assert beside(tmp_path / "out.csv", ".state").name == "out.csv.state"


def test_an_output_with_a_name_as_long_as_can_be(tmp_path, batch) -> None:
    root, out = fill(tmp_path / "photos", f"{'x' * 247}.jpg"), tmp_path / f"{'y' * 251}.csv"
    assert batch(root, "-o", out) == 0 and batch(root, "-o", out) == 0
    assert batch(root, "-o", root, "--format", "txt") == 0 and (root / f"{'x' * 247}.txt").is_file()


@pytest.mark.skipif(os.name != "posix", reason="devices")
@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_an_output_that_is_a_device(tmp_path, start_batch, format) -> None:
    root = fill(tmp_path / "photos", "a.jpg")
    before = set(Path("/dev").iterdir())
    process = start_batch(root, "-o", "/dev/null", "--format", format)
    assert process.wait() == 0, process.stderr.read()
    assert Path("/dev/null").is_char_device() and set(Path("/dev").iterdir()) == before


def test_names_are_written_as_they_are(tmp_path, batch) -> None:
    root = fill(tmp_path / "photos", "Größe.jpg", "line\u2028.jpg")
    lines, ids = tmp_path / "c.jsonl", tmp_path / "c.json"
    for flags in ((), ("--prefix", "Ü ")):
        for out in (lines, ids):
            assert batch(root, "-o", out, "--overwrite", *flags) == 0
        text = lines.read_bytes().decode()
        assert "Größe.jpg" in text and r"line\u2028.jpg" in text and len(text.splitlines()) == 2
    assert "Ü " in text and "Ü " in ids.read_text("utf-8")
    assert "Größe.jpg" in beside(ids, ".images.json").read_text("utf-8")


def test_a_run_with_escaped_names_is_resumed(tmp_path, batch) -> None:
    root, out = fill(tmp_path / "photos", "Größe.jpg", "猫.jpg"), tmp_path / "c.jsonl"
    assert batch(root, "-o", out) == 0
    before = out.read_text("utf-8")
    records = [json.loads(line) for line in before.splitlines()]
    escaped = "".join(json.dumps(record) + "\n" for record in records)  # as earlier versions wrote it
    for text in (escaped, escaped[:-20], escaped + before.splitlines()[0][:20]):
        out.write_text(text, "utf-8")
        assert batch(root, "-o", out) == 0
        assert out.read_text("utf-8") == before
    out.write_text(escaped, "ascii")
    fill(root, "Größe.jpg", "猫.jpg", "鳥.jpg")
    assert batch(root, "-o", out) == 0
    after = out.read_text("utf-8")
    assert after.startswith(before) and after.count("\n") == 3 and "鳥.jpg" in after
