"""Archives that unfold to far more than their size: refused in one line, with little memory."""

from __future__ import annotations

import gzip
import io
import lzma
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import IO

import pytest
from support.serving import make_image

from captioner.errors import DataError, ImageError
from captioner.folder.sources.archives import open_archive
from captioner.folder.sources.files import stamp_of

MEGABYTE = 2**20


def header(name: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def photo(name: str = "a.png") -> bytes:
    content = make_image(1)
    return header(name, len(content), tarfile.REGTYPE) + content.ljust(-(-len(content) // 512) * 512, b"\0")


def huge(kind: bytes, size: int) -> bytes:
    """A header with a body of `size` bytes, compressed. Pieces of one kind of byte compress at once."""
    record = b"%d path=" % size if kind in (tarfile.XHDTYPE, tarfile.XGLTYPE) else b""
    return gzip.compress(header("h", size, kind) + record.ljust(size, b"x") + photo() + bytes(1024))


def list_all(path: Path) -> list[str]:
    source = open_archive(path)
    try:
        return [found.name for found in source.find()]
    finally:
        source.close()


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
)
def test_headers_that_unfold(tmp_path, kind) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(huge(kind, 8 * MEGABYTE))
    with pytest.raises(DataError, match="too large"):
        list_all(path)


def bomb_of_members() -> bytes:
    return b"".join(header(f"{number}.txt", 0, tarfile.REGTYPE) for number in range(11_000))


CHAINS = {
    "long names in a chain": lambda: (header("n", 512, tarfile.GNUTYPE_LONGNAME) + bytes(512)) * 2000,
    "a gap that unfolds": lambda: header("a.png", 500 * MEGABYTE, tarfile.REGTYPE),
    "members without end": bomb_of_members,
    "fields for all members": lambda: b"".join(
        header("g", 512, tarfile.XGLTYPE) + (b"%d k%d=x\n" % (len(str(n)) + 8, n)).ljust(512, b"\0")
        for n in range(2000, 3500)
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_listings_that_unfold(tmp_path, name) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(CHAINS[name]() + photo() + bytes(1024), 6))
    with pytest.raises(DataError):
        list_all(path)


def test_an_uncompressed_archive_may_have_a_large_member(tmp_path) -> None:
    path = tmp_path / "a.tar"
    with path.open("wb") as file:
        file.write(header("video.mov", 10_000 * MEGABYTE, tarfile.REGTYPE))
        file.seek(10_000 * MEGABYTE, io.SEEK_CUR)
        file.write(photo() + bytes(1024))
    assert list_all(path) == ["a.png"]


def test_xz_archives_are_read_in_pieces_and_streams(tmp_path) -> None:
    path = tmp_path / "a.tar.xz"
    whole = photo("a.png") + photo("b.png") + bytes(1024)
    path.write_bytes(lzma.compress(whole[:700]) + bytes(8) + lzma.compress(whole[700:]))
    source = open_archive(path)
    found = list(source.find())
    assert [one.name for one in found] == ["a.png", "b.png"]
    for one in (*found, *found):
        assert source.read(one.locator, MEGABYTE)[0] == make_image(1)
    source.close()


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"])
def test_an_archive_that_is_replaced_while_it_is_opened(tmp_path, monkeypatch, name) -> None:
    def pack(path: Path, content: bytes) -> None:
        (tmp_path / "photo.jpg").write_bytes(content)
        if name == "a.zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.write(tmp_path / "photo.jpg")
        else:
            with tarfile.open(path, f"w:{name.removeprefix('a.tar').removeprefix('.')}") as archive:
                archive.add(tmp_path / "photo.jpg", "photo.jpg")

    def open_and_replace(path: Path, *mode: str) -> IO[bytes]:
        file = open(path, *mode)  # noqa: PTH123, SIM115 (Path.open is replaced)
        if new.exists():
            new.replace(path)
        return file

    def read() -> tuple[bytes, str, str]:
        source = open_archive(path)
        [found] = source.find()
        content, stamp = source.read(found.locator, MEGABYTE)
        source.close()
        return content, stamp, found.stamp

    path, new = tmp_path / name, tmp_path / "new"
    pack(path, b"old")
    pack(new, b"replaced")
    monkeypatch.setattr(Path, "open", open_and_replace)
    content, *stamps = read()
    assert content == b"old" and stamp_of(path.stat()) not in stamps
    assert read() == (b"replaced", *2 * [stamp_of(path.stat())])


def test_an_xz_archive_with_a_huge_dictionary(tmp_path) -> None:
    path = tmp_path / "a.tar.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**29}]
    path.write_bytes(lzma.compress(photo() + bytes(1024), filters=filters))
    with pytest.raises(DataError, match="Memory usage limit"):
        list_all(path)


def test_a_zip_archive_with_a_huge_directory(tmp_path) -> None:
    path = tmp_path / "a.zip"
    size = 40 * MEGABYTE
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, size, 0, 0)
    with path.open("wb") as file:
        file.seek(size)
        file.write(end)
    with pytest.raises(DataError, match="too large"):
        open_archive(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_a_zip_member_that_unfolds(tmp_path, kind) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("a.png", bytes(64 * MEGABYTE))
        archive.writestr("b.png", make_image(1))
    program = f"""
import resource
from pathlib import Path
from captioner.errors import ImageError
from captioner.folder.sources.archives import open_archive
source = open_archive(Path({str(path)!r}))
bad, good = source.find()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    source.read(bad.locator, {MEGABYTE})
except ImageError:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
assert len(source.read(good.locator, {MEGABYTE})[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40


def test_a_member_of_an_archive_that_is_too_large_is_one_failure(tmp_path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(photo() + bytes(1024))
    source = open_archive(path)
    [found] = source.find()
    with pytest.raises(ImageError):
        source.read(found.locator, 10)
    source.close()
