"""Disks that are full or may not be written: one line, nothing lost, and the same command resumes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.disks import filled
from support.serving import make_image

pytestmark = pytest.mark.skipif(os.name != "posix", reason="mounts and permissions")

FORMATS = ["jsonl", "csv", "parquet", "txt", "xmp"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk(photos, tmp_path, mount, batch, capsys, format) -> None:
    if format == "xmp" and shutil.which("exiftool") is None:
        pytest.skip("needs the program exiftool")
    disk = mount("-t", "tmpfs", "-o", "size=8m", "tmpfs")
    whole, out = tmp_path / f"whole.{format}", disk / f"out.{format}"
    flags = ("--format", format, "--exclude", "day2")
    assert batch(photos, "-o", whole, *flags) == 1
    failed = 0
    for leave in (0, 4096, 40_960, 65_536, 90_000, 120_000):
        capsys.readouterr()
        with filled(disk, leave):
            status = batch(photos, "-o", out, *flags)
        errors = capsys.readouterr().err
        assert "Traceback" not in errors
        if status == 2:
            failed += 1
            assert "No space left on device" in errors or "no space left on the device" in errors
            assert errors.splitlines()[-1].startswith("captioner: cannot write")
    assert failed
    assert batch(photos, "-o", out, *flags) == 1
    assert _content(out) == _content(whole)


@pytest.mark.parametrize("format", FORMATS)
def test_a_target_that_is_read_only(photos, tmp_path, mount, batch, capsys, format) -> None:
    if format == "xmp" and shutil.which("exiftool") is None:
        pytest.skip("needs the program exiftool")
    disk = mount("-t", "tmpfs", "-o", "size=8m", "tmpfs")
    out = disk / f"out.{format}"
    flags = ("--format", format, "--exclude", "day2")
    for attempt in range(2):  # before the first run, and after a whole one
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        capsys.readouterr()
        assert batch(photos, "-o", out, *flags) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[-1].startswith("captioner: cannot write") and "Read-only file system" in lines[-1], lines
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert batch(photos, "-o", out, *flags) == 1
        assert attempt or _content(out)


def test_a_folder_that_may_not_be_written(photos, tmp_path, start_batch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    for format in ("jsonl", "csv", "txt"):
        process = start_batch(photos, "-o", closed / "out", "--format", format, as_anybody=True)
        _, errors = process.communicate()
        assert process.returncode == 2
        assert errors.splitlines()[-1].startswith("captioner: cannot write") and "Permission denied" in errors
    (photos / "day1").chmod(0o500)
    process = start_batch(photos, "-o", photos, "--format", "txt", as_anybody=True)
    _, errors = process.communicate()
    (photos / "day1").chmod(0o700)
    assert process.returncode == 1 and errors.count("day1/000.txt: Permission denied") == 1
    assert (photos / "day2" / "000.txt").is_file() and not (photos / "day1" / "000.txt").exists()


def test_a_file_of_limited_size(photos, tmp_path, batch, capsys) -> None:
    """Another way for a write to fail half way, which needs no rights at all."""
    import resource

    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert batch(photos, "-o", whole, "--attention") == 1
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole.stat().st_size // 2, before[1]))
    try:
        capsys.readouterr()
        assert batch(photos, "-o", out, "--attention") == 2
        [line] = [line for line in capsys.readouterr().err.splitlines() if "cannot write" in line]
        assert line.startswith(f"captioner: cannot write {out}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert batch(photos, "-o", out, "--attention") == 1
    assert out.read_bytes() == whole.read_bytes()


def test_photos_on_a_disk_that_is_read_only(photos, tmp_path, mount, batch) -> None:
    (photos / "new.png").write_bytes(make_image(3))
    disk = mount("--bind", str(photos))
    subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
    assert batch(disk, "-o", tmp_path / "out.jsonl") == 1
    assert batch(disk, "-o", disk, "--format", "txt") == 2


def _content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {str(one.relative_to(path)): one.read_bytes() for one in files if "state" not in one.name}
