"""Output formats, one module each. Each can generate its output again from the records in the state.

A new format is one file, one line in `FORMATS` and, where they apply, in the tables below it. Its module is
imported on use, and this one imports little: the command line takes the names from here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
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


_FILES = {
    "jsonl": "captions.jsonl",
    "csv": "captions.csv",
    "parquet": "captions.parquet",
    "coco": "captions.coco.json",
}
"""Names of the files of several formats in one folder."""
_WITH_WORDS = ("jsonl", "parquet")
"""Formats that can hold words, maps and alternatives."""
_SUFFIXES = {"json": "coco"}
"""Suffixes that are not the name of their format."""
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
    suffix = path.suffix.lower().removeprefix(".")
    chosen = name or _SUFFIXES.get(suffix, suffix)
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
    """Create the output of a format, or of several separated by commas. Raises `OptionsError` for options
    that none of them supports."""
    chosen = [format_of(path, one) for one in name.split(",")] if name else [format_of(path)]
    for field, (flag, formats) in _ONLY_FOR.items():
        if getattr(options, field) and not set(chosen) & set(formats):
            raise OptionsError(f"{flag} is for {', '.join(formats)}", field)
    if len(chosen) == 1:
        return _make_one(path, options, chosen[0])
    from captioner.folder.outputs.several import SeveralOutputs, check_formats, options_for

    check_formats(chosen)
    if (options.attention or options.alternatives) and not set(chosen) & set(_WITH_WORDS):
        raise OptionsError(f"words and alternatives are for {', '.join(_WITH_WORDS)}")

    def maker(one: str) -> Callable[[], Output]:
        others = [field for field, (_, formats) in _ONLY_FOR.items() if one not in formats]
        own = options_for(options, others, has_words=one in _WITH_WORDS)
        return lambda: _make_one(path / _FILES.get(one, ""), own, one)

    return SeveralOutputs(path, {one: maker(one) for one in chosen})


def _make_one(path: Path, options: OutputOptions, name: str) -> Output:
    module, _, kind = FORMATS[name].partition(".")
    output: Output = getattr(importlib.import_module(f"{__name__}.{module}"), kind)(path, options)
    return output


def has_words(path: Path, name: str | None) -> bool:
    """Whether one of the formats can hold words, maps and alternatives."""
    chosen = name.split(",") if name else [format_of(path)]
    return bool(set(chosen) & set(_WITH_WORDS))


def output_files(path: Path, name: str | None) -> list[Path]:
    """The files that tables are written to; a folder for the files of photos."""
    names = name.split(",") if name else []
    return [path / _FILES[one] for one in names if one in _FILES] if len(names) > 1 else [path]
