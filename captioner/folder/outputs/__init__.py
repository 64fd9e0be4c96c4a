"""Output formats, one module each. Each can generate its output again from the records in the state.

A new format is one file and one entry of `FORMATS`. Its module is imported on use, and this one imports
little: the command line takes the names from here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from captioner.errors import OptionsError
from captioner.folder.outputs.options import OutputOptions

if TYPE_CHECKING:
    from captioner.folder.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of an output."""

    output: str
    """Module of this package and class."""
    file: str = ""
    """Name of the table in a folder; none where each photo has a file."""
    suffix: str = ""
    """Suffix of the table, if it is not the name of the format."""
    has_words: bool = False
    """Whether it can hold words, maps and alternatives."""
    takes: tuple[str, ...] = ()
    """Fields of `OutputOptions` that only some formats have, and this one has."""


FORMATS = {
    "jsonl": Format(output="jsonl.JsonlOutput", file="captions.jsonl", has_words=True, takes=("keywords",)),
    "csv": Format(output="csv_file.CsvOutput", file="captions.csv", takes=("keywords", "excel")),
    "parquet": Format(output="parquet.ParquetOutput", file="captions.parquet", has_words=True),
    "coco": Format(
        output="coco.CocoOutput",
        file="captions.coco.json",
        suffix="json",
        takes=("image_ids", "ids_by_order"),
    ),
    "txt": Format(output="sidecar.SidecarOutput", takes=("replace_existing",)),
    "caption": Format(output="sidecar.CaptionOutput", takes=("replace_existing",)),
    "xmp": Format(
        output="xmp.output.XmpOutput", takes=("keywords", "hierarchy", "embed", "replace_existing")
    ),
}
_FLAGS = {
    "keywords": "--keywords",
    "hierarchy": "--hierarchy",
    "embed": "--embed",
    "replace_existing": "--replace-existing",
    "excel": "--excel",
    "image_ids": "--coco-ids",
    "ids_by_order": "--coco-ids",
}
"""The flags of what formats take."""


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


def format_by_name(place: str | Path) -> str | None:
    """The format that the suffix of the output implies; None if it implies none."""
    suffix = Path(place).suffix.lower().removeprefix(".")
    return next((name for name, one in FORMATS.items() if suffix and suffix in (name, one.suffix)), None)


def choose_format(place: str | Path, name: str | None = None) -> str:
    """The requested format, or the one implied by the suffix of the output; for a folder without one, txt.
    Raises `OptionsError` for an unknown format, and where the output cannot have it."""
    path = Path(place)
    chosen = name or format_by_name(place)
    if name is None and is_folder(place):
        return chosen or "txt"
    if name is None and chosen and not FORMATS[chosen].file:
        raise OptionsError(
            f"{chosen} writes a file for each photo, not {path.name}: give a folder and the format {chosen}",
            "output",
        )
    if chosen is None or chosen not in FORMATS:
        why = f"got {name!r}" if name else f"the name {path.name!r} implies none; a folder ends with /"
        raise OptionsError(f"the format must be one of {', '.join(FORMATS)}: {why}", "format")
    return chosen


def _formats(place: str | Path, name: str | None) -> tuple[list[str], bool]:
    """The formats, and whether a folder holds them, in which each table has a name of its own."""
    chosen = [choose_format(place, one) for one in name.split(",")] if name else [choose_format(place)]
    return chosen, len(chosen) > 1 or (bool(FORMATS[chosen[0]].file) and is_folder(place))


def make_output(place: str | Path, options: OutputOptions, name: str | None = None) -> Output:
    """Create the output of a format, or of several separated by commas. Raises `OptionsError` for options
    that none of them supports."""
    path, (chosen, share_folder) = Path(place), _formats(place, name)
    for field, flag in _FLAGS.items():
        if getattr(options, field) and not any(field in FORMATS[one].takes for one in chosen):
            formats = ", ".join(one for one in FORMATS if field in FORMATS[one].takes)
            raise OptionsError(f"{flag} is for {formats}", field)
    if options.hierarchy and not options.keywords:
        raise OptionsError("--hierarchy needs --keywords", "hierarchy")
    if not share_folder:
        return _make_one(path, options, chosen[0])
    from captioner.folder.outputs.several import SeveralOutputs, check_formats, options_for

    check_formats(chosen)
    if (options.attention or options.alternatives) and not any(FORMATS[one].has_words for one in chosen):
        formats = ", ".join(one for one in FORMATS if FORMATS[one].has_words)
        raise OptionsError(f"words and alternatives are for {formats}")

    def maker(one: str) -> Callable[[], Output]:
        others = [field for field in _FLAGS if field not in FORMATS[one].takes]
        own = options_for(options, others, has_words=FORMATS[one].has_words)
        return lambda: _make_one(path / FORMATS[one].file, own, one)

    return SeveralOutputs(path, {one: maker(one) for one in chosen})


def _make_one(path: Path, options: OutputOptions, name: str) -> Output:
    if (options.attention or options.alternatives) and not FORMATS[name].has_words:
        if FORMATS[name].file:
            raise OptionsError(f"{name} holds neither words nor alternatives; jsonl and parquet do")
        raise OptionsError(f".{name} files hold the caption alone; jsonl and parquet hold more")
    module, _, kind = FORMATS[name].output.rpartition(".")
    output: Output = getattr(importlib.import_module(f"{__name__}.{module}"), kind)(path, options)
    return output


def has_words(place: str | Path, name: str | None) -> bool:
    """Whether one of the formats can hold words, maps and alternatives."""
    chosen, _ = _formats(place, name)
    return any(FORMATS[one].has_words for one in chosen)


def output_files(place: str | Path, name: str | None) -> list[Path]:
    """The files that tables are written to; a folder for the files of photos."""
    path, (chosen, share_folder) = Path(place), _formats(place, name)
    return [path / FORMATS[one].file for one in chosen if FORMATS[one].file] if share_folder else [path]
