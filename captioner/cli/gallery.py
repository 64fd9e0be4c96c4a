"""`captioner gallery`: a page for a folder of photos, captioned now or earlier by `captioner batch`."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.common import add_caption_arguments, caption_options, image_limits, open_captioner
from captioner.cli.output import printable, report_failure
from captioner.cli.overlay import with_alternatives
from captioner.errors import CaptionerError, DataError, ImageUnreadableError, OptionsError

if TYPE_CHECKING:
    from captioner.folder.items import Found
    from captioner.options import CaptionOptions
    from captioner.protocol import ImageCaptioner, Outcome

_LINES_TRIED = 100
_NOT_A_RECORD = {"code": "invalid_data", "message": "not a record of a caption"}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "gallery",
        help="make a page of a folder's photos and captions",
        description="Make a page for searching and sorting the captions of a folder of photos, which also "
        "shows where the model looked. It consists of OUT.html and the folder OUT.files; move both together.",
        epilog="Exit status: 0 all done; 1 some photos failed, which the page shows too; 2 wrong usage.",
    )
    parser.add_argument(
        "source",
        metavar="FOLDER|CAPTIONS.jsonl",
        type=Path,
        help="photos to caption, or the output of captioner batch --attention",
    )
    parser.add_argument("-o", "--output", metavar="OUT.html", required=True, type=Path)
    parser.add_argument(
        "--images",
        metavar="ROOT",
        type=Path,
        help="folder that names in CAPTIONS.jsonl are relative to (default: that of the file)",
    )
    parser.add_argument("--title", help="of the page (default: the folder's name)")
    parser.add_argument(
        "--link-photos",
        action="store_true",
        help="show the original files where a browser can, instead of copies of at most 1280 pixels",
    )
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from captioner.overlay.gallery import write_gallery
    from captioner.overlay.gallery.write import check_page

    check_page(args.output)
    if args.source.is_dir():
        if args.images is not None:
            raise OptionsError("--images is for CAPTIONS.jsonl, not for a folder", "images")
        root, records = args.source, caption_folder(args, find_photos(args.source))
    elif args.source.is_file():
        root, records = args.images or args.source.parent, read_records(args.source)
    else:
        raise DataError(f"{args.source}: there is no such folder or file")
    if not root.is_dir():
        raise OptionsError(f"{root}: there is no such folder", "images")
    summary = write_gallery(
        records,
        args.output,
        root,
        title=args.title,
        link_photos=args.link_photos,
        limits=image_limits(args),
        report=report_failure,
    )
    print(printable(str(summary.page)))
    if summary.failed:
        print(f"captioner: {summary.failed} of {summary.photos} photos failed", file=sys.stderr)
    return 1 if summary.failed else 0


def find_photos(folder: Path) -> list[Found]:
    """The images in `folder` and below, as `captioner batch` finds them, by name. Raises `DataError` if there
    are none."""
    from captioner.folder.sources import FolderSource

    photos = sorted(FolderSource(folder).find(), key=lambda photo: photo.name)
    if not photos:
        raise DataError(f"{folder}: there are no images in this folder")
    return photos


def caption_folder(args: argparse.Namespace, photos: Sequence[Found]) -> Iterator[dict[str, Any]]:
    """Caption these photos of the folder `args.source`; one record per photo."""
    from rich.console import Console
    from rich.progress import track

    from captioner.results import error_to_dict

    options = with_alternatives(dataclasses.replace(caption_options(args), attention=True))
    with open_captioner(args, draws=True) as captioner:
        outcomes = _caption(captioner, args.source, photos, options)
        console = Console(stderr=True, quiet=args.quiet)
        shown = track(outcomes, "Captioning", total=len(photos), console=console, transient=True)
        for photo, outcome in zip(photos, shown, strict=True):
            if isinstance(outcome, CaptionerError):
                yield error_to_dict(photo.name, outcome)
            else:
                yield outcome.to_dict(photo.name)


def _caption(
    captioner: ImageCaptioner, folder: Path, photos: Sequence[Found], options: CaptionOptions
) -> Iterator[Outcome]:
    """The outcome of each photo; what listing the folder showed to be no photo, such as a pipe, is not
    opened."""
    readable = (folder / photo.name for photo in photos if not photo.problem)
    outcomes = captioner.caption_each(readable, options)
    for photo in photos:
        yield ImageUnreadableError(photo.problem) if photo.problem else next(outcomes)
    next(outcomes, None)  # to the end: a server's answer too


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a JSONL file. An invalid line, such as the last one of a killed run, becomes a failed
    record. Raises `DataError` at once if the file starts with many invalid lines or has no others."""
    records = _read_lines(path)
    first: list[dict[str, Any]] = []
    for record in records:
        first.append(record)
        if record.get("error") is not _NOT_A_RECORD:
            return itertools.chain(first, records)
        if len(first) == _LINES_TRIED:
            break
    raise DataError(
        f"{path}: there are no captions in this file; a gallery is made of a folder of photos or of the "
        ".jsonl file that captioner batch wrote"
    )


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _read_line(line, f"line {number} of {path.name}")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _read_line(line: str, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if isinstance(record, dict) and "image" in record and ("caption" in record or "error" in record):
        return record
    return {"image": place, "error": _NOT_A_RECORD}
