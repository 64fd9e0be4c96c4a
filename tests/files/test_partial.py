"""The next content of a file: what it may take the place of, and what kills leave of it."""

from __future__ import annotations

import errno
import os
from typing import IO

import pytest

from captioner.files.held_folder import Folder
from captioner.files.locks import lock
from captioner.files.partial import remove_stale, replacing_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, modes and pipes")


def test_an_irreplaceable_file_is_not_exchanged_and_keeps_its_time(tmp_path) -> None:
    photo = tmp_path / "photo"
    photo.write_bytes(b"old")
    os.utime(photo, (1, 2))
    with Folder(tmp_path) as folder:
        with replacing_in(folder, "photo", irreplaceable=True) as file:
            file.write(b"new")
        assert photo.read_bytes() == b"new" and photo.stat().st_mtime == 2
        (tmp_path / "other").hardlink_to(photo)
        with pytest.raises(OSError, match="several names"), replacing_in(folder, "photo", irreplaceable=True):
            pass
        (tmp_path / "other").unlink()
        with pytest.raises(OSError, match="has changed"), replacing_in(folder, "photo", irreplaceable=True):
            photo.write_bytes(b"edited by a person")
    assert photo.read_bytes() == b"edited by a person" and list(tmp_path.iterdir()) == [photo]


def test_what_killed_runs_left_is_removed_and_nothing_else(tmp_path, monkeypatch) -> None:
    left = tmp_path / f".captioner-{'a' * 16}.partial"
    left.write_bytes(b"half")
    (tmp_path / "victim").write_bytes(b"precious")
    link = tmp_path / f".captioner-{'c' * 16}.partial"
    link.symlink_to("victim")
    with Folder(tmp_path) as folder, replacing_in(folder, "out") as file:
        [mine] = [path for path in tmp_path.iterdir() if path not in (left, link, link.with_name("victim"))]
        os.utime(mine, (1, 1))
        remove_stale(folder)
        assert not left.exists() and mine.exists()
        file.write(b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious" and (tmp_path / "out").read_bytes() == b"new"


@pytest.mark.parametrize("meanwhile", ["removed", "held"])
def test_a_run_that_cleans_up_while_another_begins_removes_nothing_of_it(
    meanwhile: str, tmp_path, monkeypatch
) -> None:
    def clean(descriptor: int) -> None:  # as another run does, before this one has locked its file
        monkeypatch.setattr("captioner.files.partial.lock", lock)
        if meanwhile == "removed":
            remove_stale(folder)
        else:
            [made] = tmp_path.glob("*.partial")
            others.append(made.open("rb"))
            lock(others[0].fileno())
        lock(descriptor)

    others: list[IO[bytes]] = []
    with Folder(tmp_path) as folder:
        monkeypatch.setattr("captioner.files.partial.lock", clean)
        with replacing_in(folder, "out") as file:
            remove_stale(folder)
            file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new" and [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_file_is_locked_until_it_is_in_its_place(tmp_path, monkeypatch) -> None:
    rename = Folder.rename

    def clean(self: Folder, old: str, new: str) -> None:
        remove_stale(self)
        rename(self, old, new)

    monkeypatch.setattr(Folder, "rename", clean)
    with Folder(tmp_path) as folder, replacing_in(folder, "out") as file:
        file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"


def test_without_locks_nothing_is_removed_that_another_run_may_write(tmp_path, monkeypatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr("captioner.files.partial.lock", fail)
    with Folder(tmp_path) as folder, replacing_in(folder, "out") as file:
        remove_stale(folder)
        file.write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"
