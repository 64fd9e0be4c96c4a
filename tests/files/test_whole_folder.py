"""Folders beside an output, in which what is to take its place is made."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from captioner.errors import OutputError
from captioner.files.whole_folder import folder_aside, hold_place, is_taken, publish_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks of folders")


def left_in(place: Path) -> list[str]:
    return [path.name for path in place.iterdir()]


def test_what_killed_runs_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left, link = (tmp_path / f".captioner-{digit * 16}" for digit in "ab")
    (left / "new" / "photos").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    link.symlink_to("victim")
    rescued = []
    with folder_aside(tmp_path) as own:
        left.mkdir(exist_ok=True)
        with folder_aside(tmp_path, rescued.append) as other:
            assert own.is_dir() and other.is_dir() and not left.exists()
    assert rescued == [left] and sorted(left_in(tmp_path)) == [link.name, "victim"]


def test_a_run_that_cleans_up_while_another_begins_removes_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from captioner.files.locks import lock

    def clean(descriptor: int) -> None:  # as another run does, before this one has locked its folder
        monkeypatch.setattr("captioner.files.whole_folder.lock", lock)
        with folder_aside(tmp_path):
            pass
        lock(descriptor)

    monkeypatch.setattr("captioner.files.whole_folder.lock", clean)
    with folder_aside(tmp_path) as own:
        assert left_in(tmp_path) == [own.name]


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr("captioner.files.whole_folder.lock", fail)
    with folder_aside(tmp_path) as own, folder_aside(tmp_path):
        assert own.is_dir()
    assert not left_in(tmp_path)


def test_a_place_is_held_by_one_run_until_it_ends_however_that_is(tmp_path: Path) -> None:
    place, code = (
        tmp_path / "new" / "bundle",
        f"""if 1:
        from pathlib import Path
        from captioner.files.whole_folder import hold_place
        with hold_place(Path({str(tmp_path / "new" / "bundle")!r})):
            print("held", flush=True)
            input()
    """,
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(OutputError, match="another run is writing this output"), hold_place(place):
            pass
        other.kill()
    with hold_place(place):
        assert not is_taken(place)
        (tmp_path / "made").mkdir()
        (tmp_path / "made" / "file").touch()
        publish_folder(tmp_path / "made", place)
    assert left_in(place) == ["file"] and is_taken(place)


def test_a_place_in_which_nothing_was_put_is_free(tmp_path: Path) -> None:
    with hold_place(tmp_path / "bundle"):
        assert left_in(tmp_path) == ["bundle"]
    assert not left_in(tmp_path)


def test_what_is_in_a_place_that_is_held_stays(tmp_path: Path) -> None:
    """That it is there is for the caller to say, which may be asked to do something with it."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to("nowhere")
    for place in (file, link):
        with hold_place(place):
            assert is_taken(place)
    assert file.is_file() and link.is_symlink()


def test_links_and_files_take_a_place(tmp_path: Path) -> None:
    link, file, empty = (tmp_path / name for name in ("link", "file", "empty"))
    empty.mkdir()
    file.touch()
    link.symlink_to("nowhere")
    assert [is_taken(one) for one in (link, file, empty)] == [True, True, False]
    link.unlink()
    link.symlink_to("empty")
    assert is_taken(link)
