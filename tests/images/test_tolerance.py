"""Files that viewers show and that other readers refuse: odd metadata, a missing end marker, short reads."""

from __future__ import annotations

import base64
import gzip
import http.client
import io
import lzma
import os
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from captioner.errors import ImageUnreadableError, NotAnImageError
from captioner.images.keywords import read_keywords
from captioner.images.opening import load_pixels, open_image
from captioner.images.sources import rereadable

CAT = Path(__file__).parents[2] / "examples" / "cat.jpg"


def photo() -> Image.Image:
    return Image.open(CAT).convert("RGB").resize((160, 120))


def png(info: PngInfo | None = None, image: Image.Image | None = None, **options: object) -> bytes:
    stream = io.BytesIO()
    (image or photo()).save(stream, "PNG", pnginfo=info, **options)
    return stream.getvalue()


def with_chunk(content: bytes, name: bytes, data: bytes, checksum: bytes | None = None) -> bytes:
    """The PNG with another chunk behind its header."""
    head = 8 + 25
    checksum = checksum or struct.pack(">I", zlib.crc32(name + data))
    return content[:head] + struct.pack(">I", len(data)) + name + data + checksum + content[head:]


def texts(kind: str) -> PngInfo:
    info, long = PngInfo(), '{"inputs": "x"}' * 200_000
    if kind == "compressed":
        info.add_itxt("workflow", long, zip=True)
        info.add_text("prompt", long, zip=True)
    else:
        info.add_itxt("XML:com.adobe.xmp", long, zip=True)
    return info


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lambda: png(texts("compressed")), id="workflow"),
        pytest.param(lambda: png(texts("xmp")), id="xmp that unfolds to megabytes"),
        pytest.param(lambda: png(icc_profile=bytes(3 << 20)), id="large profile that is none"),
        pytest.param(lambda: with_chunk(png(), b"iCCP", b"x\0\0not packed"), id="damaged profile"),
        pytest.param(lambda: with_chunk(png(), b"tEXt", b"Comment\0hello", b"oops"), id="wrong checksum"),
        pytest.param(lambda: with_chunk(png(), b"eXIf", b"II*\0", b"oops"), id="wrong checksum of EXIF"),
        pytest.param(lambda: with_chunk(png(), b"cHRM", b"short"), id="malformed"),
    ],
)
def test_metadata_do_not_make_a_good_png_bad(content) -> None:
    assert np.array_equal(open_image(content()), photo())


def test_png_metadata_that_change_the_picture_count() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert open_image(png(exif=exif)).size == (120, 160)
    palette = photo().quantize(16)
    palette.info["transparency"] = 0
    found = np.asarray(open_image(png(image=palette, transparency=0)))
    assert (found[np.asarray(palette) == 0] == 255).all()
    info = PngInfo()
    xmp = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    xmp += 'xmlns:tiff="http://ns.adobe.com/tiff/1.0/"><rdf:Description tiff:Orientation="6"/></rdf:RDF>'
    info.add_itxt("XML:com.adobe.xmp", xmp)
    assert open_image(png(info)).size == (120, 160)
    assert read_keywords(png(info)) == ()


@pytest.mark.parametrize("cut", [20, 60, 2000, -30])
def test_a_png_that_is_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(NotAnImageError):
        open_image(png()[:cut])


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_rows": 1}, {"quality": 20}])
@pytest.mark.parametrize("missing", [1, 2])
def test_a_jpeg_may_lack_its_end_marker(options: dict[str, object], missing: int) -> None:
    stream = io.BytesIO()
    photo().save(stream, "JPEG", **options)
    whole = stream.getvalue()
    assert whole.endswith(b"\xff\xd9")
    assert np.array_equal(open_image(whole[:-missing]), open_image(whole))
    assert np.array_equal(load_pixels(whole[:-missing], 32), load_pixels(whole, 32))
    for cut in (3, 6, 40, len(whole) // 2):
        with pytest.raises(NotAnImageError, match="JPEG data are damaged, cut short"):
            open_image(whole[:-cut])


def test_a_data_url_is_an_image() -> None:
    expected = open_image(CAT)
    data = base64.encodebytes(CAT.read_bytes()).decode()  # in lines
    for url in (f"data:image/jpeg;base64,{data}", f"DATA:;BASE64,{quote(data)}"):
        assert np.array_equal(open_image(url), expected)
        assert rereadable(url) == CAT.read_bytes()
    with pytest.raises(NotAnImageError, match="not valid base64"):
        open_image("data:image/png;base64,?")


class Raw(io.RawIOBase):
    """Returns a few bytes at a time, as `io.RawIOBase` may."""

    def __init__(self, content: bytes) -> None:
        self._rest = io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        part = self._rest.read(min(len(buffer), 500))
        buffer[: len(part)] = part
        return len(part)


def test_a_file_object_may_return_less_than_asked_for() -> None:
    expected = open_image(CAT)
    assert np.array_equal(open_image(Raw(CAT.read_bytes())), expected)
    code = f"import shutil, sys; shutil.copyfileobj(open({str(CAT)!r}, 'rb'), sys.stdout.buffer, 3000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, bufsize=0) as process:
        assert np.array_equal(open_image(process.stdout), expected)


@pytest.mark.skipif(not hasattr(os, "set_blocking"), reason="pipes block differently there")
def test_a_pipe_without_data_is_said() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    with (
        os.fdopen(ours, "rb", buffering=0) as file,
        pytest.raises(ImageUnreadableError, match="not arrived yet"),
    ):
        open_image(file)
    os.close(theirs)


def test_a_file_in_a_tar_archive_that_is_a_stream_is_read() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(CAT, "cat.jpg")
    packed.seek(0)
    with tarfile.open(fileobj=packed, mode="r|") as stream:  # as WebDataset reads its shards
        member = stream.extractfile(stream.next())
        assert np.array_equal(open_image(member), open_image(CAT))


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_a_file_object_may_return_any_bytes(kind) -> None:
    rest = io.BytesIO(CAT.read_bytes())
    file = SimpleNamespace(read=lambda size=-1: kind(rest.read(size)))
    assert np.array_equal(open_image(file), open_image(CAT))


def damaged_zip() -> Any:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(CAT, "cat.jpg")
    content = bytearray(packed.getvalue())
    content[5000] ^= 255
    return zipfile.ZipFile(io.BytesIO(content)).open("cat.jpg")


def cut_gzip() -> Any:
    return gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(CAT.read_bytes())[:-5000]))


def damaged_xz() -> Any:
    content = bytearray(lzma.compress(CAT.read_bytes()))
    content[900] ^= 255
    return lzma.LZMAFile(io.BytesIO(content))


def cut_answer() -> Any:
    def read(size: int = -1) -> bytes:
        raise http.client.IncompleteRead(b"")

    return SimpleNamespace(read=read)


@pytest.mark.parametrize("make", [damaged_zip, cut_gzip, damaged_xz, cut_answer])
def test_a_file_object_that_cannot_be_read_fails_alone(make) -> None:
    # Each kind of file has errors of its own.
    with pytest.raises(ImageUnreadableError):
        open_image(make())


def test_what_is_no_binary_file_is_said() -> None:
    with CAT.open(encoding="utf-8") as file, pytest.raises(NotAnImageError, match="binary mode"):
        open_image(file)
