"""A power failure leaves old or new content under a name, never none; and what a run has done stays done."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support import power
from support.serving import make_image

from captioner.cli.main import main
from captioner.files.destination import replacing
from captioner.folder.state import State
from captioner.folder.state_file import open_database
from captioner.model.installed import choose

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders that can be synced")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(make_image(number, format="JPEG"))
    return folder


def run(*arguments: object, model: Path) -> int:
    return main([*map(str, arguments), "--model", str(model), "--device", "cpu", "--quiet"])


def test_the_watch_finds_what_is_not_synced(tmp_path: Path) -> None:
    with power.watched() as disk:
        (tmp_path / "new").write_bytes(b"new")
        (tmp_path / "new").rename(tmp_path / "old")
    assert disk.lost == ["old", "old"]  # its content, and its name
    with power.watched() as disk, replacing(tmp_path / "old") as file:
        file.write(b"new")
    assert disk.published == ["old"] and not disk.lost


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet", "coco"])
def test_outputs_are_on_the_disk_before_their_names(photos, tmp_path, tiny_bundle, format) -> None:
    out = tmp_path / f"out.{format}"
    assert run("batch", photos, "-o", out, "--format", format, model=tiny_bundle) == 0
    with power.watched() as disk:
        flags = ("--format", format, "--prefix", "a photo of")  # so that the file is replaced
        assert run("batch", photos, "-o", out, *flags, model=tiny_bundle) == 0
    assert out.name in disk.published and not disk.lost


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="needs the program exiftool")
def test_photos_with_new_metadata_are_on_the_disk_before_their_names(photos, tiny_bundle) -> None:
    with power.watched() as disk:
        flags = ("--format", "xmp", "--embed")
        assert run("batch", photos, "-o", photos, *flags, model=tiny_bundle) == 0
    assert sorted(disk.published) == ["0.jpg", "1.jpg", "2.jpg"] and not disk.lost


def test_pages_and_pictures_are_on_the_disk_before_their_names(photos, tmp_path, tiny_bundle) -> None:
    for _ in range(2):
        with power.watched() as disk:
            assert run("gallery", photos, "-o", tmp_path / "page.html", model=tiny_bundle) == 0
        lost = [name for name in disk.lost if name != "old"]  # the gallery before, which is removed
        assert {"page.files", "page.html"} <= set(disk.published) and not lost
    with power.watched() as disk:
        assert run("overlay", photos / "0.jpg", "-o", tmp_path / "o.png", model=tiny_bundle) == 0
    assert disk.published == ["o.png"] and not disk.lost


def test_the_choice_of_a_model_is_on_the_disk_before_its_name(tiny_bundle) -> None:
    with power.watched() as disk:
        choose(str(tiny_bundle))
    assert disk.published == ["model"] and not disk.lost


@pytest.mark.parametrize("left", [b"", bytes(300)], ids=["nothing", "null bytes"])
@pytest.mark.parametrize("format", ["txt", "xmp"])
def test_files_whose_content_was_lost_are_written_again(photos, tiny_bundle, format, left) -> None:
    if format == "xmp" and shutil.which("exiftool") is None:
        pytest.skip("needs the program exiftool")
    command = ("batch", photos, "-o", photos, "--format", format)
    assert run(*command, model=tiny_bundle) == 0
    written = sorted(photos.glob(f"*.{format}"))
    before = [path.read_bytes() for path in written]
    assert len(written) == 3
    written[0].write_bytes(left)
    written[1].unlink()
    assert run(*command, model=tiny_bundle) == 0
    after = [path.read_bytes() for path in written]
    assert after == before if format == "txt" else all(b"<rdf:RDF" in content for content in after)


def test_what_was_captioned_is_on_the_disk_when_it_is_saved(tmp_path: Path) -> None:
    """With FULL, SQLite syncs its log at each commit, with all that was recorded before."""
    connection = open_database(tmp_path / "state")
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()
    with State(tmp_path / "state", "") as state:
        with pytest.raises(RuntimeError), state.relaxed():
            state.mark_published("a.jpg", b"1")
            raise RuntimeError
        state.set("claimed", "yes")
    with State(tmp_path / "state", "") as state:
        assert state.get("claimed") == "yes"
