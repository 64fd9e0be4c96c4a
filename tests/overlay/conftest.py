from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.browser import launch_browser
from support.captions import make_caption
from support.gallery import TEXTS

from captioner.errors import ImageUnreadableError
from captioner.overlay.gallery import write_gallery
from captioner.results import error_to_dict


# Not for the session: while Playwright is open its event loop is the thread's running one, and other tests
# could not run any.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launch_browser() as started:
        yield started


@pytest.fixture(scope="session")
def photo() -> Image.Image:
    """A photo-like picture, 300 by 200: smooth colours with some texture."""
    y, x = np.mgrid[0:200, 0:300]
    waves = np.stack(
        [128 + 100 * np.sin(x / 47), 128 + 100 * np.cos(y / 31), 128 + 60 * np.sin((x + y) / 9)], -1
    )
    return Image.fromarray(waves.astype(np.uint8))


@pytest.fixture(scope="session")
def folder(tmp_path_factory, photo) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for number in range(len(TEXTS)):
        photo.rotate(90 * number, expand=True).save(root / f"{number}.jpg")
    return root


@pytest.fixture(scope="session")
def records() -> list[dict]:
    captions = [make_caption(text.split(), sentinel=0.1) for text in TEXTS]
    made = [
        caption.to_dict(f"{number}.jpg") | {"log_prob": -2.0 - number % 3 - 0.1 * number}
        for number, caption in enumerate(captions)
    ]
    broken = error_to_dict("broken <i>.jpg", ImageUnreadableError("the file is missing"))
    return [*made[:2], broken, *made[2:]]


@pytest.fixture(scope="session")
def gallery(tmp_path_factory, folder, records) -> Path:
    page = tmp_path_factory.mktemp("gallery") / "my photos #1 100%.html"
    summary = write_gallery(records, page, folder)
    assert (summary.photos, summary.failed) == (5, 1)
    return page


@pytest.fixture(scope="session")
def tree(tmp_path_factory, photo) -> Path:
    """A gallery of photos in folders, with confidences."""
    root = tmp_path_factory.mktemp("tree")
    records = []
    for number, name in enumerate(("a.jpg", "sea/b.jpg", "sea/deep/b.jpg", "seaside/c,1.png")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        photo.save(root / name)
        caption = make_caption(("a", "boat" if number % 2 else "fish"))
        records.append(caption.to_dict(name) | {"confidence": 0.2 + 0.2 * number})
    write_gallery(records, root / "out.html", root)
    return root / "out.html"
