"""Outputs that are written safely: what links, devices, modes and other names may and may not do to them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from captioner.errors import OutputError
from captioner.files.destination import find_destination, replacing

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, modes and pipes")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    with pytest.raises(RuntimeError), replacing(out) as file:
        file.write(b"half")
        raise RuntimeError
    assert out.read_bytes() == b"old" and names(tmp_path) == ["out"]
    write(out)
    assert out.read_bytes() == b"new" and names(tmp_path) == ["out"]


def test_a_link_of_the_user_stays_and_its_file_is_written(tmp_path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "here").mkdir()
    target, link = tmp_path / "disk" / "out.csv", tmp_path / "here" / "out.csv"
    target.write_bytes(b"old")
    link.symlink_to(Path("..", "disk", "out.csv"))
    write(link)
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_a_link_to_nothing_is_followed_only_below_its_folder(tmp_path) -> None:
    (tmp_path / "here" / "real").mkdir(parents=True)
    below, out = tmp_path / "here" / "a.csv", tmp_path / "here" / "b.csv"
    below.symlink_to("real/a.csv")
    write(below)
    assert (tmp_path / "here" / "real" / "a.csv").read_bytes() == b"new"
    out.symlink_to(tmp_path / "b.csv")
    with pytest.raises(OutputError, match="which is not there; make that file"):
        write(out)
    assert not (tmp_path / "b.csv").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root")
def test_a_link_of_another_user_is_refused(tmp_path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "out").symlink_to("victim")
    os.chown(tmp_path / "out", 12345, 12345, follow_symlinks=False)
    with pytest.raises(OutputError, match="a link of another user"):
        write(tmp_path / "out")
    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_links_that_lead_to_each_other(tmp_path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match="cannot write"):
        write(tmp_path / "a")


def test_devices_and_pipes_are_written_to(tmp_path) -> None:
    write(Path(os.devnull))
    assert Path(os.devnull).is_char_device()
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write(pipe)
    reader.join()
    assert got == [b"new"] and pipe.is_fifo()


def test_the_standard_output_is_written_to(tmp_path) -> None:
    program = "from pathlib import Path\nfrom captioner.files.destination import replacing\n"
    program += "with replacing(Path('/dev/stdout')) as file: file.write(b'new')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"new"
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before ")
        log.flush()
        subprocess.run([sys.executable, "-c", program], stdout=log, check=True)
    assert (tmp_path / "log").read_bytes() == b"before new"


def test_mode_and_names_of_a_file_are_kept(tmp_path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    out.write_bytes(b"old and longer")
    out.chmod(0o640)
    write(out)
    assert out.stat().st_mode & 0o777 == 0o640
    other.hardlink_to(out)
    write(out, b"two")
    assert other.read_bytes() == out.read_bytes() == b"two" and out.samefile(other)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root")
def test_the_owner_of_a_file_is_kept(tmp_path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    os.chown(out, 12345, 23456)
    write(out)
    assert (out.stat().st_uid, out.stat().st_gid) == (12345, 23456) and out.read_bytes() == b"new"


def test_what_is_read_only_stays_also_for_root(tmp_path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    out.chmod(0o444)
    with pytest.raises(OutputError, match="it is read-only"):
        write(out)
    assert out.read_bytes() == b"old"


def test_a_name_as_long_as_can_be(tmp_path) -> None:
    write(tmp_path / ("y" * 255))


def test_an_output_with_a_null_byte_in_its_name(tmp_path) -> None:
    assert not find_destination(tmp_path / "a\0b").is_stream
