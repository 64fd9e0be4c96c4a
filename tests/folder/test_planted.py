"""Shared folders: links planted at names that a run uses, and states that somebody else has made."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.serving import make_image

from captioner.folder.items import digest_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "cat1.jpg").write_bytes(make_image(1, format="JPEG"))
    (tmp_path / "victim").write_text("precious")
    return folder


@pytest.mark.parametrize(
    ("format", "out", "plants"),
    [
        ("txt", "", ("cat1.txt.partial", "cat1.txt", ".captioner.txt.state")),
        ("caption", "", ("cat1.caption.partial",)),
        ("csv", "out.csv", ("out.csv.partial", "out.csv", "out.csv.state")),
        ("coco", "o.json", ("o.json.partial", "o.json", "o.json.state")),
        ("jsonl", "out.jsonl", ("out.jsonl.partial", "out.jsonl", "out.jsonl.state")),
        ("xmp", "", ("cat1.jpg.partial", "cat1.jpg.partial.xmp", "cat1.jpg.xmp", ".captioner.xmp.state")),
    ],
)
def test_planted_links_lead_nowhere(shared, tmp_path, batch, format, out, plants) -> None:
    if format == "xmp" and shutil.which("exiftool") is None:
        pytest.skip("needs the program exiftool")
    for plant in plants:
        for goal in ("victim", "free"):
            (shared / plant).symlink_to(tmp_path / goal)
            batch(shared, "-o", shared / out, "--format", format)
            assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "free").exists(), plant
            (shared / plant).unlink()
            for left in shared.iterdir():
                if left.name != "cat1.jpg":
                    left.unlink()


def test_a_link_planted_between_two_runs(shared, tmp_path, batch, capsys) -> None:
    out = shared / "out.jsonl"
    assert batch(shared, "-o", out) == 0
    out.unlink()
    out.symlink_to(tmp_path / "victim")
    (shared / "cat0.jpg").write_bytes(make_image(2, format="JPEG"))
    assert batch(shared, "-o", out) == 2
    assert "out.jsonl is there already (it leads to" in capsys.readouterr().err
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_folder_of_the_output_that_is_a_link(shared, tmp_path, batch, capsys) -> None:
    (shared / "sub").mkdir()
    (shared / "cat1.jpg").rename(shared / "sub" / "cat1.jpg")
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "sub").symlink_to(elsewhere)
    assert batch(shared, "-o", out, "--format", "txt") == 1
    assert "a folder on its path is a link" in capsys.readouterr().err and not any(elsewhere.iterdir())


def test_links_planted_for_galleries_and_overlays(shared, tmp_path, tiny_bundle) -> None:
    from captioner.cli.main import main

    flags = ["--model", str(tiny_bundle), "--device", "cpu", "--quiet"]
    for plant in ("page.files.partial", "page.files", "page.html"):
        (shared / plant).symlink_to(tmp_path / "free")
        main(["gallery", str(shared), "-o", str(shared / "page.html"), *flags])
        assert not (tmp_path / "free").exists()
        for made in shared.glob("page.*"):
            shutil.rmtree(made) if made.is_dir() and not made.is_symlink() else made.unlink()
    for plant, goal in (("cat.png.partial", "victim"), ("cat.png", "free")):
        (shared / plant).symlink_to(tmp_path / goal)
        main(["overlay", str(shared / "cat1.jpg"), "-o", str(shared / "cat.png"), *flags])
        assert (tmp_path / "victim").read_text() == "precious" and not (tmp_path / "free").exists()
        (shared / "cat.png").unlink()


def test_a_link_planted_for_a_checkpoint(tmp_path) -> None:
    checkpoint = pytest.importorskip("captioner.training.weights.checkpoint")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "last.pt.part").symlink_to("victim")
    checkpoint.save(tmp_path / "last.pt", {"epoch": 1})
    assert (tmp_path / "victim").read_text() == "precious" and checkpoint.load(tmp_path / "last.pt")[
        "epoch"
    ] == 1


def change(*statements: str) -> Callable[[sqlite3.Connection], object]:
    def run(state: sqlite3.Connection) -> None:
        for statement in statements:
            state.execute(statement)

    return run


def put(record: object) -> Callable[[sqlite3.Connection], object]:
    data = record if isinstance(record, bytes) else json.dumps(record).encode()
    return lambda state: state.execute("UPDATE results SET record = ?", (data,))


OWN = {"image": "cat1.jpg", "caption": "a cat", "log_prob": -1.0, "model": "m@1"}
CHANGES = {
    "a view": change("CREATE VIEW more AS SELECT * FROM results"),
    "a trigger": change("CREATE TRIGGER t AFTER UPDATE ON meta BEGIN DELETE FROM results; END"),
    "a table in disguise": change(
        "DROP TABLE targets", "CREATE VIEW targets AS SELECT 1 AS target, 2 AS name"
    ),
    "another table": change("CREATE TABLE listing (number, name)"),
    "a column that is computed": change(
        "DROP TABLE targets", "CREATE TABLE targets (target BLOB PRIMARY KEY, name BLOB AS (zeroblob(1e9)))"
    ),
    "names that are numbers": change("UPDATE results SET name = 7"),
    "names that are text": change("UPDATE results SET name = 'cat1.jpg'"),
    "a stamp of bytes": change("UPDATE results SET stamp = x'00'"),
    "a setting of bytes": change("UPDATE meta SET value = x'01'"),
    "no record": put(b"\xff\xfe"),
    "a record that is text": change("UPDATE results SET record = '{}'"),
    "a list": put([]),
    "a record of another photo": put({**OWN, "image": "../../victim"}),
    "two lines": put(b'{"image": "cat1.jpg",\n"caption": "a"}'),
    "a caption that is a number": put({**OWN, "caption": 7}),
    "a number that is text": put({**OWN, "log_prob": "x"}),
    "a number without end": put(b'{"image": "cat1.jpg", "caption": "", "log_prob": 1' + b"0" * 400 + b"}"),
    "an error that is none": put({"image": "cat1.jpg", "error": "x"}),
    "words that are none": put({**OWN, "words": [{"text": "a", "log_prob": -1, "attention": [[], [1]]}]}),
    "brackets without end": put(b'{"image": "cat1.jpg", "caption": ' + b"[" * 100_000 + b"}"),
    "a record that unfolds": put(zlib.compress(b'{"image": "' + b"x" * 2**26, 9)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_states_that_no_batch_wrote(shared, tmp_path, batch, capsys, name) -> None:
    flags = ("-o", shared / "out.csv")
    assert batch(shared, *flags) == 0
    with closing(sqlite3.connect(shared / "out.csv.state")) as connection:
        CHANGES[name](connection)
        connection.commit()
    capsys.readouterr()
    status = batch(shared, *flags)
    error = capsys.readouterr().err
    assert status in (0, 2) and "Traceback" not in error
    assert status == 0 or "state" in error
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs the program exiftool")
def test_an_intent_that_is_none(shared, batch) -> None:
    run = functools.partial(batch, shared, "-o", shared, "--format", "xmp")
    assert run() == 0
    place = shared / "cat1.jpg.xmp"
    digest = digest_of(place.read_bytes()).hex()
    for intent in (5, None, {"a": 1}, ["cat1.jpg", digest, 5], ["cat1.jpg", digest, "x"]):
        with closing(sqlite3.connect(shared / ".captioner.xmp.state")) as state, state:
            state.execute("INSERT OR REPLACE INTO meta VALUES ('writing', ?)", (json.dumps(intent),))
            state.execute("UPDATE results SET published = NULL")
        assert run() == 0 and digest_of(place.read_bytes()).hex() == digest


def test_a_state_that_gives_all_names_away_ends(shared, batch, capsys) -> None:
    assert batch(shared, "-o", shared, "--format", "txt") == 0
    with closing(sqlite3.connect(shared / ".captioner.txt.state")) as state:
        state.execute("DELETE FROM targets")
        names = [b"cat1.txt", b"cat1.jpg.txt", *(b"cat1.jpg.%d.txt" % number for number in range(2, 3000))]
        state.executemany("INSERT INTO targets VALUES (?, 'x.jpg')", [(name,) for name in names])
        state.execute("UPDATE targets SET name = CAST(name AS BLOB)")
        state.commit()
    assert batch(shared, "-o", shared, "--format", "txt", "--prefix", "now ") == 2
    assert "move it away" in capsys.readouterr().err


def test_what_to_do_about_a_damaged_state(shared, batch, capsys) -> None:
    state = shared / "out.csv.state"
    assert batch(shared, "-o", shared / "out.csv") == 0
    content = state.read_bytes()
    state.write_bytes(content[:4096] + bytes(len(content) - 4096))
    capsys.readouterr()
    assert batch(shared, "-o", shared / "out.csv") == 2
    assert capsys.readouterr().err == f"captioner: {state} is damaged; move it away\n"


def test_a_journal_that_names_a_file_to_delete(shared, tmp_path, batch) -> None:
    assert batch(shared, "-o", shared / "out.csv") == 0
    journal = shared / "out.csv.state-journal"
    journal.symlink_to(tmp_path / "victim")
    assert batch(shared, "-o", shared / "out.csv") == 0
    assert (tmp_path / "victim").read_text() == "precious" and not journal.is_symlink()
