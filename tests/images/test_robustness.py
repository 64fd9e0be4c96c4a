"""What damaged files, large files and many threads do to the image path: nothing but an `ImageError`."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.errors import ImageError
from captioner.images.opening import load_pixels, open_image

CAT = Path(__file__).parents[2] / "examples" / "cat.jpg"
MEMORY_LIMIT_MIB = 600
MODEL_MIB = 200
"""What a loaded model may take of the limit."""

_ENCODINGS: dict[str, tuple[str, dict[str, object]]] = {
    "JPEG": ("RGB", {}),
    "JPEG progressive": ("RGB", {"progressive": True}),
    "JPEG CMYK": ("CMYK", {}),
    "PNG": ("RGB", {}),
    "PNG palette": ("P", {}),
    "GIF": ("P", {"interlace": 1}),
    "WEBP": ("RGB", {}),
    "WEBP lossless": ("RGB", {"lossless": True}),
    "AVIF": ("RGB", {}),
    "TIFF": ("RGB", {}),
    "TIFF lzw": ("RGB", {"compression": "tiff_lzw"}),
    "TIFF jpeg": ("RGB", {"compression": "jpeg"}),
    "TIFF fax": ("1", {"compression": "group4"}),
    "BMP": ("RGB", {}),
    "JPEG2000": ("RGB", {}),
    "PPM": ("RGB", {}),
}


@pytest.fixture(params=_ENCODINGS)
def encoded(request: pytest.FixtureRequest) -> bytes:
    mode, options = _ENCODINGS[request.param]
    stream = io.BytesIO()
    photo = Image.open(CAT).resize((97, 65)).convert(mode)
    photo.save(stream, request.param.split()[0], **options)
    return stream.getvalue()


@pytest.mark.filterwarnings("ignore")
def test_a_truncated_file_is_an_error_or_complete(encoded: bytes) -> None:
    """Never a picture that is half grey. (A file may lose what comes after the pixels.)"""
    whole = np.asarray(open_image(encoded))
    for length in random.Random(0).sample(range(len(encoded)), 60):
        try:
            image = open_image(encoded[:length])
        except ImageError:
            continue
        np.testing.assert_array_equal(np.asarray(image), whole)
    with pytest.raises(ImageError):
        load_pixels(encoded[: len(encoded) // 3], 16)


@pytest.mark.filterwarnings("ignore")
def test_changed_bytes_raise_nothing_but_image_errors(encoded: bytes) -> None:
    generator = random.Random(1)
    for _ in range(100):
        damaged = bytearray(encoded)
        reach = generator.choice((200, len(damaged)))  # headers are where decoders go wrong
        for _ in range(generator.choice((1, 3, 10))):
            damaged[generator.randrange(min(reach, len(damaged)))] = generator.randrange(256)
        try:
            image = open_image(bytes(damaged), target=20)
        except ImageError as error:
            message = str(error)
            assert message and "\n" not in message and " at 0x" not in message
        else:
            assert image.mode == "RGB"


def test_noise_is_refused() -> None:
    generator = random.Random(2)
    for _ in range(200):
        with pytest.raises(ImageError):
            open_image(generator.randbytes(generator.randrange(300)))


_MEASURE = r"""
import re, sys
from pathlib import Path
from captioner.images.opening import load_pixels
pixels = load_pixels(sys.argv[1], 224)
assert pixels.shape == (224, 224, 3)
# Not getrusage: its ru_maxrss starts at what the parent had.
print(int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("mode", "name", "options"),
    [
        ("RGB", "photo.jpg", {}),
        ("RGB", "progressive.jpg", {"progressive": True, "subsampling": 0}),
        ("RGB", "photo.png", {"compress_level": 1}),
        ("RGBA", "transparent.png", {"compress_level": 1}),
        ("RGB", "photo.tif", {"compression": "packbits"}),
    ],
)
def test_50_megapixels_fit_into_memory(
    mode: str, name: str, options: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / name
    Image.new(mode, (8660, 5774), (200, 100, 50)).save(path, **options)
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE, path], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(measured.stdout) < MEMORY_LIMIT_MIB - MODEL_MIB


def test_100_megapixels_are_read_without_a_warning() -> None:
    stream = io.BytesIO()
    Image.new("L", (10_000, 10_001), 77).save(stream, "PNG", compress_level=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (load_pixels(stream.getvalue(), 8) == 77).all()


def test_threads_do_not_disturb_each_other() -> None:
    data = CAT.read_bytes()
    expected = load_pixels(data, 64)
    limits = Image.MAX_IMAGE_PIXELS
    with ThreadPoolExecutor(8) as pool:
        futures = [
            pool.submit(load_pixels, data if number % 2 else data[: 100 * number], 64) for number in range(64)
        ]
    for number, future in enumerate(futures):
        if number % 2:
            np.testing.assert_array_equal(future.result(), expected)
        else:
            assert isinstance(future.exception(), ImageError)
    assert limits == Image.MAX_IMAGE_PIXELS
