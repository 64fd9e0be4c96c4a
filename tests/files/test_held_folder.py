"""What is done in a folder that is held open stays in it, and is done to regular files only."""

from __future__ import annotations

import os

import pytest

from captioner.files.held_folder import Folder
from captioner.files.partial import replacing_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, modes and pipes")


def test_a_folder_is_reached_through_no_link(tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="a folder on its path is a link"):
        Folder(tmp_path / "out", "sub", "deep", create=True)
    (tmp_path / "linked").symlink_to("out")  # the user's own path
    with Folder(tmp_path / "linked", "a", "b", create=True) as folder:
        (tmp_path / "linked").unlink()
        (tmp_path / "linked").symlink_to("elsewhere")  # exchanged meanwhile
        with replacing_in(folder, "file") as file:
            file.write(b"new")
    assert (tmp_path / "out" / "a" / "b" / "file").read_bytes() == b"new"
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read_and_replaced(tmp_path, kind) -> None:
    name = tmp_path / "name"
    (tmp_path / "victim").write_bytes(b"precious")
    {"link": lambda: name.symlink_to("victim"), "pipe": lambda: os.mkfifo(name), "folder": name.mkdir}[kind]()
    with Folder(tmp_path) as folder:
        for action in (folder.read, folder.check_replaceable):
            with pytest.raises(OSError, match="it is "):
                action("name")
        with pytest.raises(OSError, match="it is "), replacing_in(folder, "name") as file:
            file.write(b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious" and len(list(tmp_path.iterdir())) == 2


def test_names_with_null_bytes(tmp_path) -> None:
    with Folder(tmp_path) as folder, pytest.raises(OSError, match="not a valid name"):
        folder.look("a\0b")
