"""Output formats, one module each. Each can generate its output again from the records in the state.

A new format is one file, one line in `FORMATS` and, where they apply, in the tables below it. Its module is
imported on use, and this one imports little: the command line takes the names from here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
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
"""Names of the files that tables have in a folder."""
_WITH_WORDS = ("jsonl", "parquet")
"""Formats that can hold words, maps and alternatives."""
_SUFFIXES = {"json": "coco"}
"""Suffixes that are not the name of their format."""
_FOLDERS = ("txt", "caption", "xmp")
"""Formats whose output is a folder."""
_ONLY_FOR = {
    "keywords": ("--keywords", ("xmp", "jsonl", "csv")),
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

    @property
    def files(self) -> Sequence[Path]:
        """The files that hold what the state does, there or not."""

    def begin(self, state: State) -> None:
        """Inspect what an earlier run has written, and publish what is ready."""

    def advance(self, state: State) -> None:
        """Publish newly finished images, if the format allows that before the end."""

    def finish(self, state: State) -> None:
        """All images are done: complete the output."""

    def close(self) -> None:
        """Close files, whether complete or not."""


def is_folder(place: str | Path) -> bool:
    """Whether an output is a folder: what is one already, or a name that ends with a slash."""
    return str(place).endswith(("/", os.sep)) or os.path.isdir(place)  # noqa: PTH112 (names that are too long)


def format_of(place: str | Path, name: str | None = None) -> str:
    """The requested format, or the one implied by the suffix of the output; for a folder without one, txt."""
    path = Path(place)
    suffix = path.suffix.lower().removeprefix(".")
    chosen = name or _SUFFIXES.get(suffix, suffix)
    if name is None and is_folder(place):
        return chosen if chosen in FORMATS else "txt"
    if name is None and chosen in _FOLDERS:
        raise OptionsError(
            f"{chosen} writes a file for each photo, not {path.name}: give a folder and the format {chosen}",
            "output",
        )
    if chosen not in FORMATS:
        why = f"got {name!r}" if name else f"the name {path.name!r} implies none; a folder ends with /"
        raise OptionsError(f"the format must be one of {', '.join(FORMATS)}: {why}", "format")
    return chosen


def _formats(place: str | Path, name: str | None) -> tuple[list[str], bool]:
    """The formats, and whether a folder holds them, in which each table has a name of its own."""
    chosen = [format_of(place, one) for one in name.split(",")] if name else [format_of(place)]
    return chosen, len(chosen) > 1 or (chosen[0] in _FILES and is_folder(place))


def make_output(place: str | Path, options: OutputOptions, name: str | None = None) -> Output:
    """Create the output of a format, or of several separated by commas. Raises `OptionsError` for options
    that none of them supports."""
    path, (chosen, share_folder) = Path(place), _formats(place, name)
    for field, (flag, formats) in _ONLY_FOR.items():
        if getattr(options, field) and not set(chosen) & set(formats):
            raise OptionsError(f"{flag} is for {', '.join(formats)}", field)
    if options.hierarchy and not options.keywords:
        raise OptionsError("--hierarchy needs --keywords", "hierarchy")
    if not share_folder:
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


def has_words(place: str | Path, name: str | None) -> bool:
    """Whether one of the formats can hold words, maps and alternatives."""
    chosen, _ = _formats(place, name)
    return bool(set(chosen) & set(_WITH_WORDS))


def output_files(place: str | Path, name: str | None) -> list[Path]:
    """The files that tables are written to; a folder for the files of photos."""
    path, (chosen, share_folder) = Path(place), _formats(place, name)
    return [path / _FILES[one] for one in chosen if one in _FILES] if share_folder else [path]
