"""Inputs of `captioner batch` with any engine: the list of images, and the wording of captions."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from captioner.errors import OptionsError

if TYPE_CHECKING:
    from captioner.folder.corrections import Corrections
    from captioner.folder.text import TextOptions
    from captioner.model.calibration import Calibration

_CHUNK_BYTES = 2**16


def read_list(args: argparse.Namespace) -> Iterator[str] | None:
    """The names in the list of --files-from; None without a list."""
    from captioner.folder.sources import read_names

    if args.files_from is None:
        if args.null:
            raise OptionsError("-0 needs --files-from", "null")
        return None
    if args.pattern or args.exclude or args.hidden:
        raise OptionsError("--pattern, --exclude and --hidden are for folders, not for --files-from")
    return read_names(_chunks(_open_list(args.files_from)), b"\0" if args.null else b"\n")


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content as it arrives. With null bytes as separators, a line may be as long as the list."""
    read = getattr(file, "read1", file.read)
    while chunk := read(_CHUNK_BYTES):
        yield chunk


def _open_list(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise OptionsError(f"--files-from: {name}: {error.strerror}", "files_from") from error


def text_options(args: argparse.Namespace) -> TextOptions:
    """The wording that the flags ask for."""
    from captioner.folder.text import TextOptions

    return TextOptions(**{field.name: getattr(args, field.name) for field in dataclasses.fields(TextOptions)})


def make_transform(
    args: argparse.Namespace, calibration: Calibration | None, corrections: Corrections | None = None
) -> Callable[[Any], Any]:
    """The function that turns a record into the one to write, as the flags ask."""
    from captioner.folder.confidence import ConfidenceFilter
    from captioner.folder.outputs.options import unchanged
    from captioner.folder.text import TextOptions

    text = text_options(args)
    reword = unchanged if text == TextOptions() else text.transform
    believe = unchanged
    if args.min_confidence is not None:
        believe = ConfidenceFilter.of(calibration, args.min_confidence).transform
    if corrections is not None:  # they are neither filtered nor reworded
        return lambda record: corrections.decide(record, reword) or reword(believe(record))
    if believe is unchanged:
        return reword
    return lambda record: reword(believe(record))
