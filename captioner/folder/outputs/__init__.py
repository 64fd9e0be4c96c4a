"""Output formats, one module each. Each can generate its output again from the records in the state.

A new format is one file and one line in `FORMATS`. Its module is imported on use, and this one imports
little: the command line takes the names from here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from captioner.errors import OptionsError
from captioner.folder.outputs.options import OutputOptions

if TYPE_CHECKING:
    from captioner.folder.state import State

__all__ = ["FORMATS", "Output", "OutputOptions", "format_of", "make_output"]

FORMATS = {
    "jsonl": "jsonl.JsonlOutput",
    "csv": "csv_file.CsvOutput",
    "parquet": "parquet.ParquetOutput",
    "coco": "coco.CocoOutput",
    "txt": "sidecar.SidecarOutput",
    "caption": "sidecar.CaptionOutput",
    "xmp": "xmp.XmpOutput",
}
"""Format name: module of this package and class."""


_FOLDERS = ("txt", "caption", "xmp")
"""Formats whose output is a folder."""
_ONLY_FOR = {
    "keywords": ("--keywords", ("xmp", "jsonl")),
    "hierarchy": ("--hierarchy", ("xmp",)),
    "embed": ("--embed", ("xmp",)),
    "replace_existing": ("--replace-existing", _FOLDERS),
    "excel": ("--excel", ("csv",)),
    "image_ids": ("--coco-ids", ("coco",)),
    "ids_by_order": ("--coco-ids", ("coco",)),
}
"""Options that only some formats have: the flag, and the formats."""


class Output(Protocol):
    """Destination of captions. All methods raise `OutputError` if writing fails."""

    state_path: Path | None
    """The file of the output's `State`; None where nothing can be resumed."""

    def begin(self, state: State) -> None:
        """Inspect what an earlier run has written, and publish what is ready."""

    def advance(self, state: State) -> None:
        """Publish newly finished images, if the format allows that before the end."""

    def finish(self, state: State) -> None:
        """All images are done: complete the output."""

    def close(self) -> None:
        """Close files, whether complete or not."""


def format_of(path: Path, name: str | None = None) -> str:
    """The requested format, or the one implied by the suffix of the output."""
    chosen = name or path.suffix.lower().removeprefix(".")
    if name is None and chosen in _FOLDERS and not path.is_dir():
        raise OptionsError(
            f"{chosen} writes a file for each photo, not {path.name}: give --format {chosen} and a folder",
            "output",
        )
    if chosen not in FORMATS:
        known = ", ".join(FORMATS)
        raise OptionsError(f"--format must be one of {known}; the name {path.name!r} implies none", "format")
    return chosen


def make_output(path: Path, options: OutputOptions, name: str | None = None) -> Output:
    """Create the output of a format. Raises `OptionsError` for options that it does not support."""
    chosen = format_of(path, name)
    for field, (flag, formats) in _ONLY_FOR.items():
        if getattr(options, field) and chosen not in formats:
            raise OptionsError(f"{flag} is for {', '.join(formats)}", field)
    module, _, kind = FORMATS[chosen].partition(".")
    output: Output = getattr(importlib.import_module(f"{__name__}.{module}"), kind)(path, options)
    return output
