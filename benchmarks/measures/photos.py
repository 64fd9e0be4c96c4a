"""Photos of the sizes that are measured, made of those in examples/."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from captioner import Captioner
from measures.bench import ROOT

SIZES = {"224 x 224": (224, 224), "500 x 375": (500, 375), "12 megapixels": (4000, 3000)}
_SOURCES = ("coffee", "raccoon", "astronaut", "shuttle", "cameraman", "jockey")
_GRAIN = 6.0
"""Standard deviation of the noise of a camera: an enlarged photo without it is decoded too quickly."""


@cache
def photos(size: tuple[int, int], count: int = 8) -> list[bytes]:
    """JPEG files of width and height `size`, not two the same."""
    return [_photo(size, number) for number in range(count)]


def pixels(captioner: Captioner, count: int = 8, size: str = "224 x 224") -> np.ndarray:
    """`count` photos as the model takes them, uint8 (count, side, side, channels); eight are different."""
    prepared = np.stack([captioner.preprocess(photo) for photo in photos(SIZES[size])])
    return prepared[np.arange(count) % len(prepared)]


def photo_files(folder: Path) -> list[Path]:
    """Photos of 500 x 375 as files."""
    contents = photos(SIZES["500 x 375"])
    paths = [folder / f"{number}.jpg" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def write_photos(folder: Path, size: tuple[int, int], count: int, different: int = 64) -> Path:
    """A folder of `count` photos, `different` of them different."""
    folder.mkdir(parents=True)
    contents = photos(size, min(count, different))
    for number in range(count):
        part = folder / f"{number // 1000:03}"
        part.mkdir(exist_ok=True)
        # A byte after the end of the picture: no two files are the same, as no two photos are.
        (part / f"{number:06}.jpg").write_bytes(contents[number % len(contents)] + b"%d" % number)
    return folder


def _photo(size: tuple[int, int], number: int) -> bytes:
    random = np.random.default_rng(number)
    source = ROOT / "examples" / f"{_SOURCES[number % len(_SOURCES)]}.jpg"
    with Image.open(source) as opened:
        centre = tuple(random.uniform(0.3, 0.7, 2).tolist())
        fitted = ImageOps.fit(opened.convert("RGB"), size, Image.Resampling.BICUBIC, centering=centre)
    grain = random.standard_normal((size[1], size[0], 1), dtype=np.float32) * _GRAIN
    pixels = np.clip(np.asarray(fitted, dtype=np.float32) + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()
