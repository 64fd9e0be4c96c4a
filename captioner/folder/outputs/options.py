"""Options of an output, and how it transforms records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from captioner.errors import CaptionerError
from captioner.folder.transform import Transform, unchanged
from captioner.options import CaptionOptions


def ignore(name: str, error: CaptionerError) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What to write beside captions, and how to transform records."""

    attention: bool = False
    alternatives: bool = False
    grid: tuple[int, int] | None = None
    """Rows and columns of the maps, if requested; None if they differ between photos."""
    transform: Transform = unchanged
    """Turns the record as the model gave it into the one to write."""
    root: Path | None = None
    """The folder that names are relative to, if there is one."""
    embed: bool = False
    """Whether to write metadata into the photo instead of a file beside it."""
    keywords: bool = False
    """Whether XMP gets keywords, where there are none, and JSON Lines and CSV a list of them."""
    hierarchy: bool = False
    """Whether XMP gets keywords with what they are kinds of, too."""
    replace_existing: bool = False
    """Whether to replace captions that something else has written."""
    excel: bool = False
    """Whether CSV begins with a byte order mark, by which Excel knows UTF-8."""
    image_ids: Mapping[str, int | None] | None = None
    """COCO image ids by name and by `captioner.references.image_key`, None for a key of several images;
    without, they come from the file names."""
    ids_by_order: bool = False
    """Whether COCO image ids count the images from 1."""
    report: Callable[[str, CaptionerError], None] = ignore
    """Called for images whose caption cannot be written, which become failures."""

    @classmethod
    def of(cls, options: CaptionOptions, grid: tuple[int, int] | None, **others: Any) -> Self:
        """What is written of captions made with `options` by a model with this `grid`."""
        return cls(
            attention=options.attention,
            alternatives=options.alternatives > 0,
            grid=options.attention_size or grid,
            **others,
        )
