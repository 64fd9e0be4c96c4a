"""What a batch writes: one module a format. Each makes its output anew from the records in the state."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol

from captioner.errors import OptionsError
from captioner.folder.outputs.options import OutputOptions
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
"""Name of the format: module of this package and class."""


class Output(Protocol):
    """Where captions go. All raise `OutputError` when writing fails."""

    state_path: Path
    """The file of the output's `State`."""

    def begin(self, state: State) -> None:
        """Take stock of what an earlier run has written, and publish what is ready."""

    def advance(self, state: State) -> None:
        """Publish what has become ready, where the format allows it before all is done."""

    def finish(self, state: State) -> None:
        """All images are done: make the output whole."""

    def close(self) -> None:
        """Let go of files, whether finished or not."""


def format_of(path: Path, name: str | None = None) -> str:
    """The format asked for, or the one that the suffix of the output stands for."""
    chosen = name or path.suffix.lower().removeprefix(".")
    if chosen not in FORMATS:
        known = ", ".join(FORMATS)
        raise OptionsError(f"--format must be one of {known}; the name {path.name!r} implies none", "format")
    return chosen


def make_output(path: Path, options: OutputOptions, name: str | None = None) -> Output:
    """The output of a format. Raises `OptionsError` for options that it cannot have."""
    chosen = format_of(path, name)
    if options.keywords and chosen != "xmp":
        raise OptionsError("--keywords is for xmp", "keywords")
    module, _, kind = FORMATS[chosen].partition(".")
    output: Output = getattr(importlib.import_module(f"{__name__}.{module}"), kind)(path, options)
    return output
