"""What a source of images is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from captioner.folder.items import ListedImage


@dataclass(slots=True)
class LeftOut:
    """How much a source has passed over while it listed its images."""

    links: int = 0
    """Links to folders, or to files outside of the source."""
    archives: int = 0
    """Archives in a folder, which are opened only if they are named themselves."""
    archives_within: int = 0
    """Archives inside an archive, which are never opened."""


class Source(Protocol):
    """A place that holds images."""

    left_out: LeftOut
    """Filled in by `find`."""
    keeps_order: bool
    """Whether the order of images is meaningful; otherwise they are sorted by name."""
    sequential: bool
    """Whether images must be read in the order found, because reading is otherwise very slow."""

    def find(self) -> Iterator[ListedImage]:
        """Every image, without reading it. Raises `DataError` if the place cannot be listed."""

    def read(self, locator: bytes, max_bytes: int) -> tuple[bytes, str]:
        """The content of an image and its stamp at that moment. Raises an `ImageError`. Thread-safe."""

    def close(self) -> None:
        """Close what the source holds open; nothing can be read afterwards."""
