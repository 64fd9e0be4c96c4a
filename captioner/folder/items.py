"""The values that pass through a run: an image listed, loaded and captioned."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from captioner.errors import CaptionerError
from captioner.results import Caption


def digest_of(content: bytes) -> bytes:
    """16 bytes that identify a content."""
    return blake2b(content, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class ListedImage:
    """An image that a source lists, not yet read."""

    name: str
    """Name in every output: its path relative to the source, with forward slashes."""
    locator: bytes
    """Locates the image in its source."""
    stamp: str
    """Changes when the image does: size and times of its file, or of the archive that holds it."""
    problem: str = ""
    """Why it cannot be read, if listing it showed that already."""


@dataclass(frozen=True, slots=True)
class Item:
    """An image to be captioned in this run."""

    number: int
    """Position in the order of the output, from 0."""
    source: int
    image: ListedImage
    known_digest: bytes | None = None
    """Digest of the content that the existing caption, by the same model and options, describes."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An image that has been read."""

    item: Item
    stamp: str
    """Stamp at the time of reading, which may be later than the listing."""
    digest: bytes | None
    """Digest of the content; None if it could not be read."""
    payload: Any
    """The input for the engine; a `CaptionerError` if it cannot be captioned; None if the content has been
    captioned before."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome for an image: a caption, an error, or None to keep the existing caption."""

    loaded: Loaded
    outcome: Caption | CaptionerError | None


@dataclass(frozen=True, slots=True)
class FolderResult:
    """The result for one image, as `captioner.caption_folder` returns it."""

    image: str
    """Name in the output."""
    caption: Caption | None
    error: CaptionerError | None = None
    """Why there is no caption."""
