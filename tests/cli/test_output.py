"""What commands say in common."""

from __future__ import annotations

import pytest

from captioner.cli.output import interrupted


@pytest.mark.parametrize(
    ("done", "of", "said"),
    [
        (0, 2, "interrupted; 0 images are done and kept, 2 are left"),
        (1, 2, "interrupted; 1 image is done and kept, 1 is left"),
        (2, 3, "interrupted; 2 images are done and kept, 1 is left"),
    ],
)
def test_one_image_is_counted_as_one(done: int, of: int, said: str) -> None:
    assert interrupted(done, of) == said
