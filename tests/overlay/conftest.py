from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.browser import launch_browser


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
