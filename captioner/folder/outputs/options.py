"""What an output is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.errors import CaptionerError

Record = Mapping[str, Any]


def unchanged(record: Record) -> Record:
    return record


def ignore(name: str, error: CaptionerError) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What is written beside captions, and how captions are shaped."""

    attention: bool = False
    alternatives: bool = False
    grid: tuple[int, int] | None = None
    """Rows and columns of the maps, where they are asked for; None where they differ from photo to photo."""
    shape: Callable[[Record], Record] = unchanged
    """From the record as the model gave it to the one to be written."""
    root: Path | None = None
    """The folder that names are relative to, where there is one."""
    embed: bool = False
    """Whether metadata go into the photo itself, not into a file beside it."""
    keywords: bool = False
    """Whether XMP gets keywords, where there are none."""
    replace_existing: bool = False
    """Whether captions that somebody else has written give way."""
    image_ids: Mapping[str, int] | None = None
    """COCO's numbers by `captioner.references.image_key`; None takes them from the names of the files."""
    report: Callable[[str, CaptionerError], None] = ignore
    """Told of images whose caption cannot be written, which become failures."""
