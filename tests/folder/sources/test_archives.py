"""What is found in archives, whole or damaged, and when they are closed."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.serving import make_image

from captioner.errors import DataError, ImageUnreadableError
from captioner.folder.api import iter_folder
from captioner.folder.sources.archives import open_archive
from captioner.folder.sources.open import open_sources
from captioner.folder.sources.source import Source
from captioner.folder.state import State


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.xz", "tar.bz2", "zip"])
def test_archives_give_what_the_folder_gives(photos: Path, tmp_path: Path, batch, suffix: str) -> None:
    out, expected = tmp_path / "out.jsonl", tmp_path / "expected.jsonl"
    assert batch(photos, "-o", expected) == 1
    packed = tmp_path / f"photos.{suffix}"
    if suffix == "zip":
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in photos.rglob("*.*"):
                archive.write(path, path.relative_to(photos))
    else:
        with tarfile.open(packed, f"w:{suffix.partition('.')[2]}") as archive:
            archive.add(photos, ".")
    assert batch(packed, "-o", out) == 1
    order = json.loads(out.read_text().splitlines()[0])["image"]  # a tar keeps its own order
    assert order
    captions = [
        {r["image"]: r.get("caption") for r in map(json.loads, path.read_text().splitlines())}
        for path in (out, expected)
    ]
    assert captions[0] == captions[1]
    before = out.read_bytes()
    assert batch(packed, "-o", out) == 1
    assert out.read_bytes() == before


@pytest.fixture
def packed(tmp_path: Path) -> list[Path]:
    """Archives of one photo each."""
    (tmp_path / "one.png").write_bytes(make_image(1))
    paths = [tmp_path / name for name in ("a.zip", "b.tar", "c.tar.gz")]
    with zipfile.ZipFile(paths[0], "w") as archive:
        archive.write(tmp_path / "one.png", "one.png")
    for path, mode in zip(paths[1:], ("w", "w:gz"), strict=True):
        with tarfile.open(path, mode) as archive:
            archive.add(tmp_path / "one.png", "one.png")
    return paths


@pytest.fixture
def opened(monkeypatch) -> list[Source]:
    """The archives that are opened meanwhile."""
    sources: list[Source] = []

    def open_and_note(*arguments) -> Source:
        sources.append(open_archive(*arguments))
        return sources[-1]

    monkeypatch.setattr("captioner.folder.sources.open.open_archive", open_and_note)
    return sources


def is_closed(source: Source) -> bool:
    try:
        [found] = source.find()
        source.read(found.locator, 10**6)
    except (DataError, ImageUnreadableError):
        return True
    return False


def test_archives_are_closed_after_a_run(packed, opened, tmp_path, batch, tiny_captioner) -> None:
    assert batch(packed[0], "-o", tmp_path / "one.jsonl") == 0
    assert batch(*packed, "-o", tmp_path / "all.jsonl") == 0
    results = iter_folder(packed, captioner=tiny_captioner)
    next(results)
    assert [is_closed(source) for source in opened] == [True] * 4 + [False] * 3
    results.close()
    assert all(map(is_closed, opened))


def test_archives_are_closed_if_another_source_cannot_be_opened(packed, opened, tmp_path) -> None:
    with (
        pytest.raises(DataError, match="there is no such folder or file"),
        open_sources([*packed, tmp_path / "missing"]),
    ):
        pass
    assert len(opened) == 3 and all(map(is_closed, opened))


def test_damaged_archives(tmp_path: Path, batch, capsys) -> None:
    for name in ("a.zip", "a.tar", "a.tar.gz"):
        path = tmp_path / name
        path.write_bytes(b"nothing that makes sense" * 50)
        with pytest.raises(DataError, match="archive"), open_sources([path]):
            pass
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("good.png", make_image(1))
        archive.writestr("bad.png", make_image(2))
    data = bytearray(whole.getvalue())
    data[data.index(b"bad.png") + 100] ^= 0xFF
    (tmp_path / "b.zip").write_bytes(data)
    assert batch(tmp_path / "b.zip", "-o", tmp_path / "out.jsonl") == 1
    assert "bad.png: damaged in the archive" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_what_follows_damage_in_a_tar_is_not_lost_in_silence(tmp_path: Path, batch, capsys, suffix) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for number in range(4):
            info = tarfile.TarInfo(f"{number}.png")
            content = make_image(number)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    data = bytearray(whole.getvalue())
    packed = tmp_path / f"photos.{suffix}"
    header = data.index(b"2.png")
    damaged = bytes(data[:header]) + b"\xff" * 300 + bytes(data[header + 300 :])
    if suffix == "tar":
        packed.write_bytes(damaged)
    else:
        squeezed = bytearray(gzip.compress(bytes(data)))
        squeezed[len(squeezed) // 2 :] = os.urandom(len(squeezed) // 2)
        packed.write_bytes(squeezed)
    assert batch(packed, "-o", tmp_path / "out.jsonl") == 2
    assert f"{packed}: damaged or cut short" in capsys.readouterr().err


def test_archives_in_a_folder_are_counted(photos, tmp_path, batch, capsys) -> None:
    for name in ("a.zip", "day0/b.tar.gz", ".hidden.zip"):
        (photos / name).write_bytes(b"")
    assert batch(photos, "-o", tmp_path / "out.jsonl") == 1
    errors = capsys.readouterr().err
    assert "not opened: 2 archives in the folder; name one" in errors
    assert "captioner: 90 images in " in errors
    (photos / "a.zip").unlink()
    assert batch(photos, "-o", tmp_path / "again.jsonl", "--pattern", "broken.jpg") == 1
    errors = capsys.readouterr().err
    assert "not opened: 1 archive in the folder" in errors and "captioner: 1 image in " in errors


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_in_an_archive_are_counted(tmp_path, batch, capsys, kind) -> None:
    def pack(name: str, *within: str) -> Path:
        (tmp_path / "one.png").write_bytes(make_image(1))
        if kind == "zip":
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                for one in within:
                    archive.write(tmp_path / "one.png", one)
        else:
            with tarfile.open(tmp_path / name, "w") as archive:
                for one in within:
                    archive.add(tmp_path / "one.png", one)
        return tmp_path / name

    packed = pack(f"outer.{kind}", "a.png", "b/inner.zip", "c.tgz", "__MACOSX/.c.tgz")
    assert batch(packed, "-o", tmp_path / "out.jsonl") == 0
    assert "not opened: 2 archives inside another archive; unpack the outer one" in capsys.readouterr().err
    assert batch(packed, tmp_path / "one.png", "-o", tmp_path / "both.jsonl") == 0
    assert "not opened: 2 archives inside another archive; unpack the outer one" in capsys.readouterr().err
    only = pack(f"only.{kind}", "inner.zip")
    assert batch(only, "-o", tmp_path / "only.jsonl") == 2
    assert "there are no images, only archives (1), which" in capsys.readouterr().err


def test_the_later_member_of_an_archive_counts(tmp_path: Path, batch) -> None:
    photos = [make_image(1), make_image(2)]
    with tarfile.open(tmp_path / "twice.tar", "w") as archive:
        for data in photos:
            member = tarfile.TarInfo("a.png")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with open_sources([tmp_path / "twice.tar"]) as sources, State(None, "") as state:
        assert state.find_images(sources) == 1
        [item] = state.pending()
        assert sources[0].read(item.image.locator, 2**20)[0] == photos[1]
