"""What the image path gives for every kind of image that a person may have.

`python tests/images/test_opening.py` rewrites the stored pixels after an intended change of preprocessing.
"""

from __future__ import annotations

import io
import os
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from captioner.errors import ImageTooLargeError, ImageUnreadableError, NotAnImageError, OptionsError
from captioner.images.limits import DEFAULT_LIMITS, ImageLimits
from captioner.images.opening import load_pixels, open_image, to_pixels
from captioner.images.sources import is_single

DATA = Path(__file__).parents[1] / "data"
EXAMPLES = Path(__file__).parents[2] / "examples"
STORED = DATA / "pixels.npz"
STORED_SIZE = 32


def real_images() -> list[Path]:
    return sorted([*EXAMPLES.rglob("*.jpg"), *DATA.glob("*.jpg"), *DATA.glob("*.png"), *DATA.glob("*.webp")])


def encode(image: Image.Image, format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def quadrants(width: int = 60, height: int = 40) -> Image.Image:
    """Red, green / blue, yellow."""
    image = Image.new("RGB", (width, height), "red")
    image.paste("lime", (width // 2, 0, width, height // 2))
    image.paste("blue", (0, height // 2, width // 2, height))
    image.paste("yellow", (width // 2, height // 2, width, height))
    return image


def corners(image: Image.Image) -> list[tuple[int, ...]]:
    """The colours in the middle of the four quadrants, in reading order."""
    pixels = np.asarray(image)
    rows, columns, _ = pixels.shape
    return [
        tuple(int(value) for value in pixels[row, column])
        for row in (rows // 4, 3 * rows // 4)
        for column in (columns // 4, 3 * columns // 4)
    ]


QUADRANT_COLORS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0)]


def assert_shows_quadrants(image: Image.Image, tolerance: int = 6) -> None:
    assert image.mode == "RGB"
    np.testing.assert_allclose(corners(image), QUADRANT_COLORS, atol=tolerance)


# -- the pixels themselves -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", real_images(), ids=lambda path: path.name)
def test_pixels_are_those_stored(path: Path) -> None:
    with np.load(STORED) as stored:
        expected = stored[path.name].astype(int)
    pixels = load_pixels(path, STORED_SIZE)
    assert pixels.shape == (STORED_SIZE, STORED_SIZE, 3) and pixels.dtype == np.uint8
    difference = np.abs(pixels - expected)
    # Decoders differ by a step or two between versions; a change of ours would be far larger.
    assert difference.mean() < 0.5 and difference.max() <= 8


@pytest.mark.parametrize(
    ("path", "format"),
    [*((path, "JPEG") for path in sorted(EXAMPLES.glob("*.jpg"))), (EXAMPLES / "raccoon.jpg", "BMP")],
    ids=lambda value: getattr(value, "name", value),
)
def test_reduced_decoding_hardly_changes_the_pixels(path: Path, format: str) -> None:
    photo = Image.open(path).convert("RGB")
    data = encode(photo.resize((photo.width * 3, photo.height * 3)), format)
    whole = to_pixels(open_image(data), 64)
    difference = np.abs(whole.astype(int) - load_pixels(data, 64))
    assert difference.mean() < 0.5 and difference.max() <= 6
    assert min(open_image(data, target=192).size) in range(192, 2 * 192)


def test_a_path_bytes_and_a_pillow_image_give_the_same() -> None:
    path = EXAMPLES / "cat.jpg"
    pixels = load_pixels(path, 224)
    for source in (str(path), path.read_bytes(), bytearray(path.read_bytes()), Image.open(path)):
        np.testing.assert_array_equal(load_pixels(source, 224), pixels)


def test_an_image_of_hugging_face_that_is_not_decoded() -> None:
    path = EXAMPLES / "cat.jpg"
    for record in ({"bytes": path.read_bytes(), "path": "x.jpg"}, {"bytes": None, "path": str(path)}):
        assert is_single(record)
        np.testing.assert_array_equal(load_pixels(record, 224), load_pixels(path, 224))
    with pytest.raises(NotAnImageError, match='a dict is an image if it has its "bytes" or its "path"'):
        open_image({"image": Image.open(path)})


def test_a_pillow_image_is_left_as_it_was() -> None:
    image = Image.open(EXAMPLES / "raccoon.jpg")
    size = image.size
    opened = open_image(image, target=50)
    assert image.size == size and opened is not image and opened.width < image.width


# -- orientation, formats and modes ----------------------------------------------------------------------

# What the camera stored, for each orientation, so that the upright picture shows the quadrants.
_STORED_FOR = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = quadrants()
    stored = upright.transpose(_STORED_FOR[orientation]) if orientation in _STORED_FOR else upright
    image = open_image(encode(stored, format, exif=exif))
    assert image.size == upright.size
    assert_shows_quadrants(image, tolerance=60 if format in ("WEBP", "AVIF", "JPEG") else 0)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_passed_over(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert open_image(encode(quadrants(), "PNG", exif=exif)).size == (60, 40)


@pytest.mark.parametrize(
    "format", ["BMP", "GIF", "JPEG2000", "PNG", "PPM", "TIFF", "MPO", "AVIF", "WEBP", "JPEG"]
)
def test_photos_of_every_format_are_opened(format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {"quality": 95} if format in ("JPEG", "MPO") else {}
    assert_shows_quadrants(open_image(encode(quadrants(), format, **options)), tolerance=8)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF", "MPO", "AVIF"])
def test_the_first_of_several_frames_is_taken(format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    data = encode(
        quadrants(), format, save_all=True, append_images=[Image.new("RGB", (60, 40), "black")], **options
    )
    assert_shows_quadrants(open_image(data), tolerance=40)


@pytest.mark.parametrize("target", [None, 10])
@pytest.mark.parametrize("mode", ["P", "CMYK", "YCbCr", "RGBA", "RGBX", "RGBa", "HSV"])
def test_color_modes(mode: str, target: int | None) -> None:
    assert_shows_quadrants(open_image(quadrants().convert(mode), target=target))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I", "I;16", "F"])
def test_grey_modes(mode: str) -> None:
    grey = Image.new("L", (40, 20), 0)
    grey.paste(255, (20, 0, 40, 20))
    values = np.asarray(grey)
    images = {
        "I": Image.fromarray(values.astype(np.int32) * 257),
        "I;16": Image.fromarray(values.astype(np.uint16) * 257),
        "F": Image.fromarray(values.astype(np.float32) / 255),
    }
    image = open_image(images[mode] if mode in images else grey.convert(mode))
    assert corners(image) == [(0, 0, 0), (255, 255, 255)] * 2


@pytest.mark.parametrize("format", ["PNG", "TIFF", "PPM"])
def test_16_bit_is_scaled_not_clipped(format: str) -> None:
    ramp = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (8, 1))
    pixels = np.asarray(open_image(encode(Image.fromarray(ramp), format)))
    np.testing.assert_allclose(pixels[0, :, 0], np.arange(256), atol=1)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 128.0, 255.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([0.0, 500_000.0, 1_000_000.0], [0, 128, 255]),
        ([np.nan, 0.5, np.inf], [0, 128, 255]),
        ([0.0, 0.0, 0.0], [0, 0, 0]),
    ],
)
def test_float_tiff(values: list[float], expected: list[int]) -> None:
    image = Image.fromarray(np.array([values], dtype=np.float32))
    pixels = np.asarray(open_image(encode(image, "TIFF")))
    np.testing.assert_allclose(pixels[0, :, 0], expected, atol=1)


def tiff_of_16_bits(planes: np.ndarray, photometric: int) -> bytes:
    """A TIFF file with one strip for each of the planes (planes, rows, columns)."""
    (count, height, width), head = planes.shape, 512
    offsets = [head + number * height * width * 2 for number in range(count)]
    tags = {256: width, 257: height, 258: [16] * count, 259: 1, 262: photometric, 273: offsets, 277: count}
    tags |= {278: height, 279: [height * width * 2] * count, 284: 2 if count > 1 else 1}
    directory = struct.pack("<H", len(tags))
    outside = b""
    for tag, value in tags.items():
        data = np.array(value, np.uint32).tobytes()
        if len(data) > 4:
            data, outside = struct.pack("<I", 256 + len(outside)), outside + data
        directory += struct.pack("<HHI", tag, 4, np.size(value)) + data
    return (b"II*\0\x08\0\0\0" + directory).ljust(256, b"\0") + outside.ljust(256, b"\0") + planes.tobytes()


def test_a_tiff_of_16_bits_in_planes() -> None:
    planes = np.moveaxis(np.asarray(quadrants()), 2, 0).astype(np.uint16) * 257
    assert_shows_quadrants(open_image(tiff_of_16_bits(planes, 2)), tolerance=0)


def test_a_tiff_of_16_bits_whose_zero_is_white() -> None:
    ramp = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (1, 8, 1))
    pixels = np.asarray(open_image(tiff_of_16_bits(ramp, 0)))
    np.testing.assert_allclose(pixels[0, :, 0], np.arange(256)[::-1], atol=1)


def test_adobe_cmyk_jpeg_is_not_inverted() -> None:
    # Pillow writes CMYK as Adobe's programs do: inverted, with an APP14 marker.
    data = encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG")
    assert b"Adobe" in data
    np.testing.assert_allclose(corners(open_image(data)), [(255, 0, 0)] * 4, atol=4)


@pytest.mark.parametrize("target", [None, 8])
@pytest.mark.parametrize("kind", ["RGBA", "LA", "PA", "P bytes", "P index", "RGB key", "L key"])
def test_transparency_is_laid_over_white(kind: str, target: int | None) -> None:
    image = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (16, 0, 32, 32))
    sources: dict[str, Image.Image | bytes] = {
        "RGBA": image,
        "LA": image.convert("LA"),
        "PA": image.convert("PA"),
        "P bytes": encode(image.quantize(4), "PNG"),
        "P index": encode(image, "GIF"),
    }
    if kind.endswith("key"):
        opaque = Image.new("RGB", (32, 32), "red")
        opaque.paste("black", (16, 0, 32, 32))
        mode = kind.split()[0]
        key = opaque.convert(mode).getpixel((0, 0))
        sources[kind] = encode(opaque.convert(mode), "PNG", transparency=key)
    np.testing.assert_allclose(
        corners(open_image(sources[kind], target=target)), [(255, 255, 255), (0, 0, 0)] * 2, atol=2
    )


def test_half_transparent_black_is_grey() -> None:
    assert corners(open_image(Image.new("RGBA", (4, 4), (0, 0, 0, 128))))[0] == (127, 127, 127)


def test_an_embedded_profile_is_converted_to_srgb() -> None:
    # A profile of a linear grey: a middle value means more light than the same value in sRGB.
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image = Image.new("RGB", (16, 16), (200, 60, 60))
    plain = open_image(encode(image, "PNG"))
    assert corners(open_image(encode(image, "PNG", icc_profile=srgb))) == corners(plain)
    for unusable in (b"not a profile", srgb[:200], lab):
        assert corners(open_image(encode(image, "PNG", icc_profile=unusable))) == corners(plain)
    swapped = srgb.replace(b"rXYZ", b"tXYZ", 1).replace(b"bXYZ", b"rXYZ", 1).replace(b"tXYZ", b"bXYZ", 1)
    swapped = swapped.replace(b"s\0R\0G\0B", b"s\0w\0a\0p")
    red, _, blue = corners(open_image(encode(image, "PNG", icc_profile=swapped)))[0]
    assert blue > red  # in that profile red light is blue


def linear_profile(color: bytes) -> bytes:
    """A profile for the colour space `RGB ` or `GRAY` without a curve, called "sRGB built-in"."""
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    linear = re.sub(b"para\0{5}\x03.{6}", b"para" + bytes(9) + b"\1\0\0", srgb, flags=re.DOTALL)
    assert linear != srgb
    return linear[:16] + color + linear[20:].replace(b"rTRC", b"kTRC" if color == b"GRAY" else b"rTRC", 1)


def test_a_linear_profile_that_is_called_srgb() -> None:
    image = Image.new("RGB", (16, 16), (55, 55, 55))  # a fifth of the light
    found = corners(open_image(encode(image, "PNG", icc_profile=linear_profile(b"RGB "))))
    np.testing.assert_allclose(found, 128, atol=2)


@pytest.mark.parametrize(("mode", "color"), [("L", 55), ("LA", (55, 255))])
def test_a_grey_profile_counts_beside_transparency(mode: str, color: int) -> None:
    data = encode(Image.new(mode, (16, 16), color), "PNG", icc_profile=linear_profile(b"GRAY"))
    np.testing.assert_allclose(corners(open_image(data)), 128, atol=2)


# -- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1), (10_000, 1), (1, 10_000), (3, 700)])
@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF"])
def test_extreme_sizes(size: tuple[int, int], format: str) -> None:
    data = encode(Image.new("RGB", size, "red"), format)
    assert open_image(data, target=224).size == size
    np.testing.assert_allclose(load_pixels(data, 8)[4, 4], (255, 0, 0), atol=4)


def test_a_reduced_image_keeps_its_shape_and_its_edges() -> None:
    image = open_image(encode(quadrants(1999, 1333), "PNG"), target=100)
    assert image.size == (-(-1999 // 13), -(-1333 // 13))
    assert_shows_quadrants(image)


def test_images_over_a_limit_are_rejected() -> None:
    data = encode(quadrants(), "PNG")
    open_image(data, ImageLimits(max_pixels=60 * 40, max_bytes=len(data)))
    with pytest.raises(ImageTooLargeError, match="60 x 40 is more pixels than the limit of 2399"):
        open_image(data, ImageLimits(max_pixels=60 * 40 - 1))
    with pytest.raises(ImageTooLargeError, match="more bytes than the limit"):
        open_image(data, ImageLimits(max_bytes=len(data) - 1))
    with pytest.raises(ImageTooLargeError):
        open_image(quadrants(), ImageLimits(max_pixels=100))
    with pytest.raises(OptionsError):
        ImageLimits(max_pixels=0)


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.jpg"
    with path.open("wb") as file:
        file.truncate(DEFAULT_LIMITS.max_bytes + 1)
    with pytest.raises(ImageTooLargeError):
        open_image(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_an_image_is_read_from_a_pipe(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, encode(quadrants(), "PNG"))
    os.close(write_end)
    try:
        assert_shows_quadrants(open_image(f"/dev/fd/{read_end}"))
    finally:
        os.close(read_end)


# -- what is refused --------------------------------------------------------------------------------------


def test_unreadable_paths(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "missing.jpg", "No such file or directory"),
        (tmp_path, "Is a directory"),
        ("a\0b.jpg", "not a valid path"),
        ("x" * 5000, "File name too long"),
        ("", "No such file or directory"),
    ):
        with pytest.raises(ImageUnreadableError) as raised:
            open_image(path)
        assert str(raised.value) == reason


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "locked.png"
    path.write_bytes(encode(quadrants(), "PNG"))
    path.chmod(0)
    with pytest.raises(ImageUnreadableError, match="Permission denied"):
        open_image(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"Dear diary, today I took a photo.\n", "not an image in a known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image in a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image in a known format"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "the HEIC data are damaged"),
        (b"\xff\x0a" + bytes(80), "JPEG XL is not supported"),
        (b"\xff\xd8\xff\xe0" + bytes(80), "the JPEG data are damaged, cut short"),
        (b"BM" + b"cdefgh" * 9, "the BMP data are damaged, cut short"),
    ],
)
def test_what_is_not_an_image(data: bytes, reason: str) -> None:
    with pytest.raises(NotAnImageError) as raised:
        open_image(data)
    assert str(raised.value).startswith(reason) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "a pointer of Git LFS"),
        (b"\n<!-- ours --><!DOCTYPE HTML>\n<title>secret</title>", "an HTML page"),
        (b"<html lang='en'>", "an HTML page"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "an SVG drawing"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- secret -->\n<svg width='9'/>", "an SVG drawing"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "PostScript (EPS)"),
        (b"\0\0\0\x20ftypisom\0\0\2\0isomiso2avc1mp41", "a video (MP4 or MOV)"),
        (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "a video (MP4 or MOV)"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01", "a video (WebM or Matroska)"),
        (b"PK\x03\x04\x14\0\0\0", "an archive"),
        (b"\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0", "an icon (ICO or ICNS)"),
        (b"8BPS\0\1\0\0\0\0\0\0\0\3", "a Photoshop document (PSD)"),
        (b"gimp xcf v011\0", "a GIMP picture (XCF)"),
        (b"AT&TFORM\0\0\1\0DJVM", "a DjVu document"),
        (bytes(128) + b"DICM\2\0", "a medical image (DICOM)"),
        (b"FOVb\0\0\3\0", "a RAW photo of a kind that is not read"),
        ("Liebes Tagebuch, schöner ".encode() * 20, "text"),
        (("é" * 200).encode(), "text"),
        (b"a" + ("é" * 200).encode(), "text"),
    ],
)
def test_what_else_a_file_is(data: bytes, kind: str) -> None:
    with pytest.raises(NotAnImageError) as raised:
        open_image(data)
    said = str(raised.value)
    assert said.startswith("not an image in a known format (") and f"): it is {kind}" in said
    assert "secret" not in said and "Tagebuch" not in said  # an error quotes no content of the file


@pytest.mark.parametrize("data", [bytes(300), b"\1\2\3 text", b"<!---->" * 35 + b"\0" * 11, b"\xc3" * 300])
def test_nothing_is_said_of_what_is_not_known(data: bytes) -> None:
    with pytest.raises(NotAnImageError) as raised:
        open_image(data)
    assert str(raised.value).endswith(")")


@pytest.mark.parametrize("source", [None, 7, ["a.jpg"]])
def test_what_is_not_an_input(source: object) -> None:
    with pytest.raises(NotAnImageError, match="expected a path, bytes, a binary file"):
        open_image(source)  # type: ignore[arg-type]


def test_an_array_of_another_library_is_one_image_and_no_collection_of_rows() -> None:
    torch = pytest.importorskip("torch")
    for pixels in (torch.zeros(4, 5, 3, dtype=torch.uint8), torch.zeros(4, 5)):
        assert is_single(pixels)
        with pytest.raises(NotAnImageError, match="a Pillow image or a NumPy array, got Tensor"):
            open_image(pixels)
    assert not is_single(torch.zeros(2, 4, 5, 3))


def test_a_decompression_bomb_is_refused_before_it_is_decoded() -> None:
    width = height = 30_000
    header = b"P6 %d %d 255\n" % (width, height)
    with pytest.raises(ImageTooLargeError, match="30000 x 30000"):
        open_image(header)


def test_a_closed_pillow_image_is_refused() -> None:
    image = Image.open(EXAMPLES / "cat.jpg")
    image.close()
    with pytest.raises(NotAnImageError):
        open_image(image)


if __name__ == "__main__":
    np.savez_compressed(STORED, **{path.name: load_pixels(path, STORED_SIZE) for path in real_images()})
    print(f"wrote {STORED}", file=sys.stderr)
