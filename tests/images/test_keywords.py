"""Keywords inside photos, as exiftool and Pillow write them."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from support.photos import photo_with

from captioner.images.keywords import read_keywords
from captioner.images.xmp import MAX_PACKET_BYTES


@pytest.mark.parametrize("format", ["JPEG", "WebP", "AVIF"])
def test_keywords_of_xmp(format: str) -> None:
    assert read_keywords(photo_with("Dog", " red  ", "", "Dog", "cr&#232;me", format=format)) == (
        "Dog",
        "red",
        "crème",
    )


def test_photos_without_keywords_and_files_that_are_no_photos() -> None:
    plain = io.BytesIO()
    Image.new("RGB", (8, 8)).save(plain, "PNG")
    many = b"\xff\xd8\xff" + b"<rdf:RDF " * 200_000
    damaged = photo_with("dog").replace(b"</rdf:Bag>", b"</rdf:Gab>")
    for content in (plain.getvalue(), b"", b"text", many, damaged):
        assert read_keywords(content) == ()


def test_a_packet_that_unfolds_to_gigabytes_is_not_read() -> None:
    keywords = photo_with("dog")
    begin = keywords.index(b"<rdf:Bag>")
    large = keywords[:begin] + b"<a/>" * (MAX_PACKET_BYTES // 4) + keywords[begin:]
    assert read_keywords(large + photo_with("cat")) == ("cat",)


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="there is no exiftool")
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "webp"])
def test_keywords_as_exiftool_writes_them(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (8, 8)).save(path)
    tags = ["-XMP-dc:Subject=dog", "-XMP-dc:Subject=Küche"]
    if suffix in ("jpg", "tif"):
        tags += ["-IPTC:Keywords=cat", "-IPTC:Keywords=Tür", "-IPTC:CodedCharacterSet=UTF8"]
    subprocess.run(["exiftool", "-q", *tags, str(path)], check=True)
    expected = ("dog", "Küche", "cat", "Tür") if suffix in ("jpg", "tif") else ("dog", "Küche")
    assert read_keywords(path) == expected
