"""The next content of a file: what it may take the place of, and what kills leave of it."""

from __future__ import annotations

import os

import pytest

from captioner.files.held_folder import Folder
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


def test_what_killed_runs_left_is_removed_and_nothing_else(tmp_path) -> None:
    stale, fresh = (tmp_path / f".captioner-{digit * 16}.partial" for digit in "ab")
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (1, 1))
    (tmp_path / "victim").write_bytes(b"precious")
    link = tmp_path / f".captioner-{'c' * 16}.partial"
    link.symlink_to("victim")
    with Folder(tmp_path) as folder, replacing_in(folder, "out") as file:
        [mine] = [
            path for path in tmp_path.iterdir() if path not in (stale, fresh, link, link.with_name("victim"))
        ]
        os.utime(mine, (1, 1))
        remove_stale(folder)
        assert not stale.exists() and fresh.exists() and mine.exists()
        file.write(b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious" and (tmp_path / "out").read_bytes() == b"new"
