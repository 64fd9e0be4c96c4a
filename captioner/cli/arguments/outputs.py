"""What `captioner batch` and `captioner convert` write, and where."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.corrections import say_unused
from captioner.cli.output import report_failure
from captioner.folder.outputs import FORMATS
from captioner.printable import counted

if TYPE_CHECKING:
    from captioner.folder.corrections import Corrections
    from captioner.folder.outputs import OutputOptions
    from captioner.folder.text import TextOptions
    from captioner.model.calibration import Calibration
    from captioner.options import CaptionOptions

OUTPUT_HELP = "file to write; or folder, which ends with / or is there already (default: .txt files)"
_WRITTEN = ("embed", "excel", "keywords", "hierarchy", "replace_existing")
"""Options of `OutputOptions`, by the same names."""
_BY_ORDER = Path("order")
"""The value of --coco-ids that is no file; a file of this name is ./order."""


def add_format_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        type=_formats,
        metavar="FORMAT[,FORMAT...]",
        help=f"{', '.join(FORMATS)}; several write into the folder OUT (default: by the suffix of OUT)",
    )


def _formats(text: str) -> str:
    for name in text.split(","):
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(FORMATS)}")
    return text


def add_output_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--embed", action="store_true", help="with xmp: write into the photos themselves; OUT is their folder"
    )
    group.add_argument(
        "--keywords",
        action="store_true",
        help="with xmp, jsonl and csv: also write the things in the photo as keywords (xmp: if it has none)",
    )
    group.add_argument(
        "--hierarchy",
        action="store_true",
        help="with --keywords: also what they are kinds of (animal|dog|dalmatian), for Lightroom and digiKam",
    )
    group.add_argument(
        "--corrections",
        type=Path,
        metavar="FILE",
        help="write captions as approved or edited in a gallery, and none for rejected ones; or as changed in"
        " the CSV or JSON lines of captioner batch",
    )
    group.add_argument(
        "--replace-existing",
        action="store_true",
        help="replace sidecars and descriptions of other programs (default: keep them)",
    )
    group.add_argument(
        "--coco-ids",
        type=Path,
        metavar="FILE",
        help="with coco: JSON of COCO or Karpathy with the ids, or the word order, which counts from 1 "
        "(default: the numbers that names end with, if all do)",
    )
    group.add_argument(
        "--excel", action="store_true", help="with csv: begin with a byte order mark (BOM), which Excel needs"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRequest:
    """What a command line asks to be written."""

    output: str
    """As it was given: a folder may end with a slash."""
    format: str | None
    """One format, or several separated by commas."""
    written: Mapping[str, bool]
    """What is written beside captions, as fields of `OutputOptions`."""
    coco_ids: Path | None
    """A file with the ids of COCO."""
    ids_by_order: bool
    """Whether these ids count the images from 1."""
    corrections: Path | None
    text: TextOptions
    min_confidence: float | None
    overwrite: bool
    quiet: bool

    @property
    def input_files(self) -> list[Path]:
        """Files that are read for the output, which it may not replace."""
        return [file for file in (self.corrections, self.coco_ids) if file is not None]


def output_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `OutputRequest` that the flags give. Raises `OptionsError`."""
    from captioner.folder.text import TextOptions

    text = {field.name: getattr(args, field.name) for field in dataclasses.fields(TextOptions)}
    return {
        "output": str(args.output),
        "format": args.format,
        "written": {name: getattr(args, name) for name in _WRITTEN},
        "coco_ids": None if args.coco_ids == _BY_ORDER else args.coco_ids,
        "ids_by_order": args.coco_ids == _BY_ORDER,
        "corrections": args.corrections,
        "text": TextOptions(**text),
        "min_confidence": args.min_confidence,
        "overwrite": args.overwrite,
        "quiet": args.quiet,
    }


def read_corrections(request: OutputRequest) -> Corrections | None:
    from captioner.folder.corrections import Corrections

    return None if request.corrections is None else Corrections.read(request.corrections)


def say_unused_corrections(request: OutputRequest, *sources: Path) -> None:
    """Say that there are decisions beside the sources, or in the folder of the output. They are not used
    unasked, since they change what is written."""
    if request.corrections is None and not request.quiet:
        say_unused(*sources, Path(request.output))


def unmatched_corrections(corrections: Corrections) -> Iterator[str]:
    """How many of the corrections are of none of the photos, and how many may be of several."""
    for names, what in (
        (corrections.unmatched, "of no photo in the output, such as {}"),
        (corrections.ambiguous, "with a name that others look like, such as {}; write it exactly as it is"),
    ):
        if names:
            count = counted(len(names), "correction")
            yield f"not used: {count} {what.format(names[0])}"


def output_options(
    request: OutputRequest,
    options: CaptionOptions,
    grid: tuple[int, int] | None,
    transform: Callable[[Any], Any],
    root: Path | None,
) -> OutputOptions:
    """What to write of captions made with `options`; `grid` and `root` are those of `OutputOptions`."""
    from captioner.folder.outputs import OutputOptions

    return OutputOptions.of(
        options,
        grid,
        transform=transform,
        root=root,
        image_ids=None if request.coco_ids is None else _read_image_ids(request.coco_ids),
        ids_by_order=request.ids_by_order,
        report=report_failure,
        **request.written,
    )


def _read_image_ids(path: Path) -> dict[str, int | None]:
    """`OutputOptions.image_ids` from a file of COCO or Karpathy."""
    from captioner.references import image_key, read_image_ids

    ids: dict[str, int | None] = {}
    for name, image_id in read_image_ids(path):
        key = image_key(name)
        ids[key] = None if key in ids else image_id
        ids[name] = image_id
    return ids


def make_transform(
    request: OutputRequest,
    calibration: Calibration | None,
    corrections: Corrections | None = None,
    *,
    is_recorded: bool = False,
) -> Callable[[Any], Any]:
    """The function that turns a record into the one to write. Records of an earlier run have their
    confidence and need no calibration."""
    from captioner.folder.confidence import ConfidenceFilter
    from captioner.folder.text import TextOptions
    from captioner.folder.transform import unchanged

    reword = unchanged if request.text == TextOptions() else request.text.transform
    believe = unchanged
    if request.min_confidence is not None:
        make = ConfidenceFilter if is_recorded else ConfidenceFilter.of
        believe = make(calibration, request.min_confidence).transform
    if corrections is not None:  # they are neither filtered nor reworded
        return lambda record: corrections.decide(record, reword) or reword(believe(record))
    if believe is unchanged:
        return reword
    return lambda record: reword(believe(record))
