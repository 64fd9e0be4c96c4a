"""Folders that somebody exchanges for a link while a run writes to them: nothing is written elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.serving import make_image

from captioner.folder.state import State

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, and folders that are held open")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder of photos, and a private one with files of the same names."""
    for name in ("shared", "private"):
        (tmp_path / name / "sub").mkdir(parents=True)
        for number, photo in enumerate(("a.jpg", "sub/b.jpg")):
            (tmp_path / name / photo).write_bytes(make_image(number, format="JPEG"))
    for name in ("a.txt", "a.jpg.xmp", "out.jsonl", "out.csv", "out.json", "out.json.images.json"):
        (tmp_path / "private" / name).write_text("precious")
    return tmp_path / "shared"


@pytest.fixture
def exchange(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Exchanges the folder when the first captions are saved; gives the path that it is moved to."""
    moved, save = shared.with_name("moved"), State.save

    def exchanging(state: State, *arguments: object, **options: object) -> None:
        save(state, *arguments, **options)  # type: ignore[arg-type]
        if not moved.exists():
            shared.rename(moved)
            shared.symlink_to(shared.with_name("private"))

    monkeypatch.setattr(State, "save", exchanging)
    return moved


@pytest.mark.parametrize(
    ("format", "out", "written"),
    [
        ("jsonl", "out.jsonl", "out.jsonl"),
        ("csv", "out.csv", "out.csv"),
        ("coco", "out.json", "out.json.images.json"),
        ("txt", "", "sub/b.txt"),
        ("xmp", "", "sub/b.jpg.xmp"),
        ("xmp --embed", "", "sub/b.jpg"),
    ],
)
def test_an_exchanged_folder(shared, exchange, batch, format, out, written) -> None:
    if "xmp" in format and shutil.which("exiftool") is None:
        pytest.skip("needs the program exiftool")
    private = shared.with_name("private")
    before = {path: path.read_bytes() for path in private.rglob("*") if path.is_file()}
    photo = (shared / "sub" / "b.jpg").read_bytes()
    batch(shared, "-o", shared / out, "--format", *format.split())
    assert exchange.is_dir() and shared.is_symlink()
    assert {path: path.read_bytes() for path in private.rglob("*") if path.is_file()} == before
    assert (exchange / written).read_bytes() not in (b"", photo)
