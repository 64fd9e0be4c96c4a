"""The page of a gallery: of photos that are captioned for it, or of the captions of an earlier run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.inputs import IS_ARCHIVE
from captioner.cli.arguments.model import LocalModel, ServedModel
from captioner.cli.output import report_failure, say, with_progress
from captioner.errors import CaptionerError, DataError, ImageUnreadableError, OptionsError
from captioner.images.suffixes import is_archive
from captioner.printable import printable

if TYPE_CHECKING:
    from captioner.options import CaptionOptions
    from captioner.overlay.gallery import GalleryOptions, GallerySummary

_RECORDS_LOOKED_AT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What a page is made of, and where."""

    source: Path
    from_folder: bool
    root: Path
    """The folder that the names of photos are relative to."""
    model: LocalModel | ServedModel
    options: CaptionOptions
    output: Path
    gallery: GalleryOptions
    quiet: bool
    corrections: Path | None
    """Decisions that replace captions and leave out rejected ones."""


def find_source(source: Path, images: Path | None) -> tuple[bool, Path]:
    """Whether `source` is a folder, and the folder that the names of photos are relative to, `images` or that
    of the captions. Raises `DataError` and `OptionsError`."""
    from_folder = source.is_dir()
    if from_folder and images is not None:
        raise OptionsError("--images is for CAPTIONS.jsonl, not for a folder", "images")
    if not from_folder and not source.is_file():
        raise DataError(f"{source}: there is no such folder or file")
    if not from_folder and is_archive(source.name):
        raise DataError(f"{source}: {IS_ARCHIVE}")
    root = source if from_folder else images or source.parent
    if not root.is_dir():
        raise OptionsError(f"{root}: there is no such folder", "images")
    return from_folder, root


def write_page(request: PageRequest) -> GallerySummary:
    """Write the page, and report photos that failed to stderr. Raises `DataError`, `OptionsError` or
    `OutputError` for captions, folders or a page that cannot be used."""
    from captioner.overlay.gallery import write_gallery
    from captioner.overlay.gallery.write import check_page

    check_page(request.output, overwrite=request.gallery.overwrite)
    records = _correct(_make_records(request) if request.from_folder else _find_records(request), request)
    return write_gallery(records, request.output, request.root, request.gallery, report_failure)


def _correct(records: Iterator[dict[str, Any]], request: PageRequest) -> Iterator[Mapping[str, Any]]:
    """The records after the decisions of a person, without those of rejected captions. Raises
    `DataError`."""
    if request.corrections is None:
        return records
    from captioner.errors import REJECTED
    from captioner.folder.corrections import Corrections

    corrections = Corrections.read(request.corrections)
    if not request.quiet:
        say(f"captions are shown as corrected in {request.corrections}")

    def is_rejected(error: Any) -> bool:
        return isinstance(error, Mapping) and error.get("code") == REJECTED

    named = ({**record, "image": str(record["image"])} for record in records)
    decided = (corrections.decide(record) or record for record in named)
    return (record for record in decided if not is_rejected(record.get("error")))


def _find_records(request: PageRequest) -> Iterator[dict[str, Any]]:
    """The records of a JSONL file. Raises `OptionsError` where none of the first photos is there."""
    from captioner.folder.records import read_records

    records = read_records(request.source)
    first = list(itertools.islice(records, _RECORDS_LOOKED_AT))
    names = [str(record["image"]) for record in first if "caption" in record]
    if names and not any(os.path.lexists(request.root / name) for name in names):
        raise OptionsError(
            f"{request.root} has none of the photos in {request.source.name}, such as {printable(names[0])}; "
            "--images ROOT says where they are",
            "images",
        )
    return itertools.chain(first, records)


def _make_records(request: PageRequest) -> Iterator[dict[str, Any]]:
    """Caption the photos of a folder; one record per photo. What listing the folder showed to be no photo,
    such as a pipe, is not opened."""
    from captioner.folder.sources.files import find_photos
    from captioner.results import error_to_dict

    photos = find_photos(request.source)
    images = (
        ImageUnreadableError(photo.problem) if photo.problem else request.source / photo.name
        for photo in photos
    )
    with request.model.open() as captioner:
        outcomes = captioner.caption_each(images, request.options)
        shown = with_progress(outcomes, "Captioning", len(photos), quiet=request.quiet)
        for photo, outcome in zip(photos, shown, strict=True):
            if isinstance(outcome, CaptionerError):
                yield error_to_dict(photo.name, outcome)
            else:
                yield outcome.to_dict(photo.name)
