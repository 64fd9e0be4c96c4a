"""What travels through a run: an image found, read, and captioned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from captioner.errors import CaptionerError
from captioner.results import Caption


@dataclass(frozen=True, slots=True)
class Found:
    """An image that a source lists and nobody has read yet."""

    name: str
    """What it is called in every output: its path below the source, with forward slashes."""
    locator: bytes
    """How its source finds it again."""
    stamp: str
    """Changes when the image does: size and time of modification, or size and checksum."""
    problem: str = ""
    """Why it cannot be read, where listing it has shown that already."""


@dataclass(frozen=True, slots=True)
class Item:
    """An image that is still to be captioned in this run."""

    number: int
    """Its place in the order of the output, from 0."""
    source: int
    found: Found
    known_digest: bytes | None = None
    """Digest of the content that the caption at hand, made by this model with these options, is of."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """An image that has been read."""

    item: Item
    stamp: str
    """As it was when it was read, which may be later than it was listed."""
    digest: bytes | None
    """Of the content; None when it could not be read."""
    payload: Any
    """What the engine captions; a `CaptionerError` when it cannot be; None when the content is the one
    that has been captioned before."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of an image: a caption, an error, or None for the caption that it has already."""

    loaded: Loaded
    outcome: Caption | CaptionerError | None


@dataclass(frozen=True, slots=True)
class FolderResult:
    """One image of a finished or running batch, as `captioner.caption_folder` hands it out."""

    image: str
    """Its name in the output."""
    caption: Caption | None
    error: CaptionerError | None = None
    """Why there is no caption."""
