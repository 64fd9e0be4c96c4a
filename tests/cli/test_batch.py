"""`captioner batch` against servers, with a gallery, and the same from Python."""

from __future__ import annotations

import argparse
import json
import shutil
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.patience import PATIENCE_S, wait_until
from support.photos import photo_with
from support.processes import ServerProcess, server_process
from support.serving import RunningServer, make_image

import captioner
from captioner.captioner import Captioner
from captioner.cli.commands.batch import add_parser
from captioner.cli.commands.batch import servers as batch_servers
from captioner.cli.commands.batch.progress import BatchProgress
from captioner.cli.main import main
from captioner.errors import ImageError
from captioner.folder.items import FolderResult
from captioner.folder.sources.selection import Selection
from captioner.model.detection import Detection
from captioner_client import ClientOptions
from captioner_server.options import ServerOptions

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    root = tmp_path / "photos"
    root.mkdir()
    for number in range(40):
        (root / f"{number:02}.png").write_bytes(make_image(number))
    (root / "broken.png").write_bytes(b"no image")
    return root


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("flags", "overwrite"), [([], False), (["--resume"], False), (["--overwrite"], True)]
)
def test_resume_is_the_opposite_of_overwrite(flags: list[str], overwrite: bool) -> None:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    assert parser.parse_args(["batch", "photos", "-o", "out.jsonl", *flags]).overwrite is overwrite


def test_servers_write_what_the_model_here_writes(photos, tmp_path, tiny_captioner, tiny_bundle) -> None:
    local = tmp_path / "local.jsonl"
    assert main(["batch", str(photos), "-o", str(local), "--model", str(tiny_bundle), "--device", "cpu"]) == 1
    servers = [RunningServer(tiny_captioner, ServerOptions(port=0)) for _ in range(2)]
    try:
        out = tmp_path / "out.jsonl"
        addresses = ",".join(server.address for server in servers)
        arguments = ["batch", str(photos), "-o", str(out), "--server", addresses]
        assert main(arguments) == 1
        records = read(out)
        assert [(r["image"], r.get("caption")) for r in records] == [
            (r["image"], r.get("caption")) for r in read(local)
        ]
        before = out.read_bytes()
        assert main(arguments) == 1
        assert out.read_bytes() == before
    finally:
        for server in servers:
            server.close()


def test_a_server_that_dies_costs_nothing(photos, tmp_path, capsys, monkeypatch) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["batch", str(photos), "-o", str(out), "--timeout-s", str(PATIENCE_S), "--server"]
    slow = {"image_s": 0.1, "max_batch_size": 1, "metrics_port": 0}
    with server_process(**slow) as first, server_process(**slow) as second, ThreadPoolExecutor(1) as pool:

        def captioned(server: ServerProcess) -> bool:
            with urllib.request.urlopen(server.metrics_url, timeout=PATIENCE_S) as page:
                return b'captioner_images_total{outcome="ok"}' in page.read()

        def kill_at_work() -> None:
            """The first that has captioned anything: the other one may have been given nothing."""
            wait_until(lambda: next(filter(captioned, (first, second)), None)).process.kill()

        killed = pool.submit(kill_at_work)
        assert main([*arguments, f"{first.address},{second.address}"]) == 1
        killed.result()
    records = read(out)
    assert len(records) == 41 and sum("error" in record for record in records) == 1
    capsys.readouterr()
    monkeypatch.setattr("captioner_client.waiting._PAUSE_S", PATIENCE_S)  # longer than it may wait
    assert main([*arguments, "localhost:1", "--overwrite"]) == 2
    assert "no server answers at localhost:1" in capsys.readouterr().err
    assert read(out) == records


def test_a_server_that_is_away_is_passed_over(photos, tmp_path, tiny_captioner, capsys) -> None:
    server = RunningServer(tiny_captioner, ServerOptions(port=0))
    try:
        out = tmp_path / "out.jsonl"
        flags = ["-o", str(out), "--timeout-s", "120", "--server", f"localhost:1,{server.address}"]
        assert main(["batch", str(photos), *flags]) == 1
    finally:
        server.close()
    assert len(read(out)) == 41
    assert "localhost:1" in capsys.readouterr().err


def test_a_server_that_goes_away_again_at_once_is_named(
    photos, tmp_path, tiny_captioner, capsys, monkeypatch
) -> None:
    """It answers between the two times that all servers are asked."""
    nobody = batch_servers._ask("localhost:1", ClientOptions())
    monkeypatch.setattr(batch_servers, "_ask", lambda *_: nobody)
    server = RunningServer(tiny_captioner, ServerOptions(port=0))
    try:
        flags = ["-o", str(tmp_path / "out.jsonl"), "--server", f"{server.address},localhost:1"]
        assert main(["batch", str(photos), *flags]) == 2
    finally:
        server.close()
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("captioner: --server: no server answers at localhost:1")


def test_a_server_that_changes_its_model_ends_the_run(photos, tmp_path, tiny_captioner, capsys, monkeypatch):
    server = RunningServer(tiny_captioner, ServerOptions(port=0))
    monkeypatch.setattr("captioner.model.info.ModelInfo.model", property(lambda _: "other@0123456789ab"))
    try:
        out = tmp_path / "out.jsonl"
        assert main(["batch", str(photos), "-o", str(out), "--server", server.address]) == 2
    finally:
        server.close()
    assert "a server has another model now" in capsys.readouterr().err
    assert read(out) == []


def test_a_gallery_of_the_batch(tmp_path, tiny_bundle) -> None:
    root = tmp_path / "photos"
    root.mkdir()
    shutil.copy(EXAMPLES / "cat.jpg", root)
    page = tmp_path / "gallery.html"
    flags = ["--model", str(tiny_bundle), "--device", "cpu", "--gallery", str(page)]
    out = tmp_path / "out.jsonl"
    assert main(["batch", str(root), "-o", str(out), *flags]) == 2
    assert main(["batch", str(root), "-o", str(out), *flags, "--attention"]) == 0
    assert page.is_file() and len(list(page.with_suffix(".files").glob("photos/*"))) == 1


def test_names_are_reported_as_they_are(capsys) -> None:
    progress = BatchProgress(1, 1, quiet=True)
    progress.say_failure(FolderResult("trip:100:[b].jpg", None, ImageError("not an image")))
    assert capsys.readouterr().err == "captioner: trip:100:[b].jpg: not an image\n"


def test_python_captions_a_folder_as_the_command_does(photos, tmp_path, tiny_captioner: Captioner) -> None:
    results = captioner.caption_folder(photos, captioner=tiny_captioner)
    assert [result.image for result in results][-1] == "broken.png"
    assert results[-1].error is not None and results[0].caption is not None
    out = tmp_path / "out.csv"
    some = captioner.iter_folder(photos, out, captioner=tiny_captioner, batch_size=8)
    assert next(some).image == "00.png"
    some.close()
    assert not out.exists()
    rest = captioner.caption_folder(photos, out, captioner=tiny_captioner, batch_size=8)
    assert len(rest) == 33 and len(out.read_text().splitlines()) == 42
    for name, format, reason in (("odd.xyz", None, "'odd.xyz' implies none"), ("a.csv", "exe", "got 'exe'")):
        with pytest.raises(captioner.OptionsError, match=f"^the format must be one of jsonl, .*{reason}"):
            captioner.caption_folder(photos, tmp_path / name, captioner=tiny_captioner, format=format)
    (tmp_path / "none").mkdir()
    with pytest.raises(captioner.DataError, match="there are no images"):
        captioner.caption_folder(tmp_path / "none", tmp_path / "new", captioner=tiny_captioner, format="txt")
    assert not (tmp_path / "new").exists()
    only = Selection(patterns=["0*.png"])
    assert len(captioner.caption_folder(photos, captioner=tiny_captioner, selection=only)) == 10


def test_an_archive_keeps_the_captions_of_photos_that_share_a_name(
    tmp_path, tiny_captioner: Captioner
) -> None:
    archive = tmp_path / "photos.zip"
    with zipfile.ZipFile(archive, "w") as written:
        for name, photo in (("a.jpg", "cat"), ("a.png", "coffee")):
            written.write(EXAMPLES / f"{photo}.jpg", name)
    captioner.caption_folder(archive, tmp_path / "out", captioner=tiny_captioner, format="txt")
    assert sorted(path.name for path in (tmp_path / "out").glob("*.txt")) == ["a.png.txt", "a.txt"]


def test_keywords_are_what_the_model_sees(tmp_path, tiny_bundle, tiny_captioner) -> None:
    photos, out = tmp_path / "photos", tmp_path / "out.jsonl"
    photos.mkdir()
    (photos / "a.png").write_bytes(make_image(1))
    arguments = ["-o", str(out), "--model", str(tiny_bundle), "--device", "cpu", "--keywords"]
    assert main(["batch", str(photos), *arguments]) == 0
    [record] = read(out)
    assert record["keywords"] == list(tiny_captioner.caption(photos / "a.png", keywords=True).keywords)


def test_keywords_are_a_list_where_there_are_none(tmp_path, tiny_bundle, monkeypatch) -> None:
    monkeypatch.setattr(Detection, "keywords", lambda *_: ())
    photos, out, corrections = tmp_path / "photos", tmp_path / "out.jsonl", tmp_path / "corrections.jsonl"
    photos.mkdir()
    for name in ("a.png", "b.png"):
        (photos / name).write_bytes(make_image(1))
    (photos / "c.png").write_bytes(b"no image")
    corrections.write_text(json.dumps({"image": "b.png", "caption": "a dog", "status": "edited"}))
    flags = ["-o", str(out), "--model", str(tiny_bundle), "--corrections", str(corrections)]
    assert main(["batch", str(photos), *flags, "--keywords"]) == 1
    found = {record["image"]: record.get("keywords") for record in read(out)}
    assert found == {"a.png": [], "b.png": ["dog"], "c.png": None}
    assert main(["batch", str(photos), *flags]) == 1
    assert not any("keywords" in record for record in read(out))


def test_captions_hold_keywords_of_their_photos(tmp_path, tiny_bundle, tiny_captioner, capsys) -> None:
    words = sorted(tiny_captioner.bundle.vocabulary.words[4:])[:3]
    photos, out = tmp_path / "photos", tmp_path / "out.jsonl"
    photos.mkdir()
    for word in words:
        (photos / f"{word}.jpg").write_bytes(photo_with(word, "xyzzy"))
    (photos / "plain.png").write_bytes(make_image(1))
    arguments = ["batch", str(photos), "-o", str(out), "--model", str(tiny_bundle), "--device", "cpu"]
    assert main(arguments) == 0
    without = {record["image"]: record["caption"] for record in read(out)}
    assert main([*arguments, "--include-keywords"]) == 0
    captions = {record["image"]: record["caption"] for record in read(out)}
    assert all(word in captions[f"{word}.jpg"].split() for word in words)
    assert captions["plain.png"] == without["plain.png"]
    assert "keywords that the model does not know: xyzzy (3)" in capsys.readouterr().err
    for flag in (["--include-keywords"], ["--device", "cpu"]):
        assert main(["batch", str(photos), "-o", str(out), "--server", "localhost:1", *flag]) == 2
        assert f"{flag[0]} cannot be used with --server" in capsys.readouterr().err
