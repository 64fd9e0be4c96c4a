"""Photos of phones and cameras: HEIC, and the previews of RAW files."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from captioner.errors import NotAnImageError
from captioner.images.opening import load_pixels, open_image


def jpeg(size: tuple[int, int], color: str, **how: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, "JPEG", **how)
    return file.getvalue()


def tiff_raw(orientation: int, *previews: bytes) -> bytes:
    """As DNG is made: a TIFF whose first picture is a thumbnail, with larger previews behind it."""
    file, tags = io.BytesIO(), TiffImagePlugin.ImageFileDirectory_v2()
    tags.tagtype[50706] = 1
    tags[50706], tags[0x0112] = bytes([1, 4, 0, 0]), orientation
    Image.new("RGB", (16, 12), "gray").save(file, "TIFF", tiffinfo=tags)
    return b"".join([file.getvalue(), *(b"\0\xff\xd8\xff" + preview for preview in previews)])


def test_heic_is_opened_and_damage_is_an_error() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    file = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 48), (0, 128, 128))).save(file)
    image = open_image(file.getvalue())
    assert image.size == (64, 48) and np.allclose(image.getpixel((5, 5)), (0, 128, 128), atol=3)
    assert load_pixels(file.getvalue(), 32).shape == (32, 32, 3)
    with pytest.raises(NotAnImageError, match="damaged"):
        open_image(file.getvalue()[:300])


def test_heic_without_the_package_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif.as_plugin", None)
    with pytest.raises(NotAnImageError, match=r"pip install '\.\[photos\]'"):
        open_image(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")


@pytest.mark.parametrize(
    "begin",
    [b"", b"II*\0\x10\0\0\0CR\x02\0", b"\0\0\0\x18ftypcrx ", b"FUJIFILMCCD-RAW 0201", b"IIU\0", b"IIRO"],
)
def test_the_largest_preview_of_a_raw_file_is_taken(begin: bytes) -> None:
    small, large = jpeg((160, 120), "red"), jpeg((600, 400), "blue")
    sensor = b"\xff\xd8\xff\xc3\x00\x0b\x08\x20\x00\x20\x00\x01\x01\x11\x00" + bytes(64)
    content = begin + small + sensor + large + sensor if begin else tiff_raw(6, small, sensor, large)
    image = open_image(content)
    assert image.size == ((600, 400) if begin else (400, 600))
    red, _, blue = image.getpixel((9, 9))
    assert blue > 200 > 50 > red


def test_a_preview_that_knows_how_it_lies_is_believed() -> None:
    exif = Image.Exif()
    exif[0x0112] = 1
    assert open_image(tiff_raw(6, jpeg((600, 400), "blue", exif=exif))).size == (600, 400)


def test_raw_without_a_preview_says_so() -> None:
    with pytest.raises(NotAnImageError, match="no JPEG preview"):
        open_image(tiff_raw(1))
    with pytest.raises(NotAnImageError, match="no JPEG preview"):
        open_image(b"FUJIFILMCCD-RAW " + bytes(1000))


def test_a_tiff_is_a_tiff() -> None:
    file = io.BytesIO()
    Image.new("RGB", (30, 20), "green").save(file, "TIFF")
    assert open_image(file.getvalue() + jpeg((300, 200), "red")).size == (30, 20)
