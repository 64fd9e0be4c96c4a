"""`captioner search`: find photos by the captions of an earlier run."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.corrections import DEFAULT, found_corrections
from captioner.cli.arguments.values import positive
from captioner.cli.output import say
from captioner.errors import CaptionerError, DataError, ImageUnreadableError, OptionsError
from captioner.images.suffixes import PICTURES, RAW
from captioner.printable import counted, printable
from captioner.readable_json import dump_record

if TYPE_CHECKING:
    from captioner.retrieval import CaptionText

_CAPTIONS = "captions.jsonl"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "search",
        help="find photos by their captions",
        description="Find photos by the captions of an earlier run, best first: IMAGE<TAB>caption. Words are "
        'found by their forms, synonyms and kinds; "a phrase" must be there as it is, -word must not.',
    )
    parser.add_argument(
        "source",
        metavar="FOLDER|CAPTIONS",
        type=Path,
        help="captions that captioner batch wrote (JSONL, CSV) or people (COCO), or a folder with "
        "captions.jsonl, or with text or XMP files beside its photos",
    )
    parser.add_argument(
        "words", nargs="*", metavar="WORDS", help="such as a dog on a beach, or in quotes 'dog -street'"
    )
    parser.add_argument(
        "-n", "--limit", type=positive, default=20, metavar="N", help="at most N photos (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="JSON lines, with scores")
    parser.add_argument(
        "--corrections",
        type=Path,
        metavar="FILE",
        help=f"decisions from a gallery, or a CSV with changed captions (default: {DEFAULT}, if it is there)",
    )
    parser.add_argument(
        "--duplicates",
        action="store_true",
        help="instead, list photos of FOLDER that look alike, with an empty line between groups",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    source: Path
    words: str | None
    """None to list duplicates."""
    limit: int
    as_json: bool
    corrections: Path | None

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        words = " ".join(args.words)
        if args.duplicates and (words or args.json):
            raise OptionsError("--duplicates takes a folder only", "duplicates")
        # Else it is said that there is no such file: `captioner search dog` lacks the folder, not the words.
        if not (args.duplicates or words) and args.source.exists():
            raise OptionsError("name what to search for, such as 'a dog on a beach'", "words")
        return cls(
            source=args.source,
            words=None if args.duplicates else words,
            limit=args.limit,
            as_json=args.json,
            corrections=args.corrections,
        )


def run(args: argparse.Namespace) -> int:
    request = Request.read(args)
    return list_duplicates(request.source) if request.words is None else search(request, request.words)


def search(request: Request, words: str) -> int:
    """Print what is found; the exit status."""
    from captioner.retrieval import CaptionIndex

    photos = list(read_captions(request.source, request.corrections))
    found = CaptionIndex(photos).find(words)[: request.limit]
    for one in found:
        if request.as_json:
            shown = {"image": one.photo.image, "caption": one.photo.caption, "score": round(one.score, 4)}
            print(dump_record(shown))
        else:
            print(f"{printable(one.photo.image)}\t{printable(one.photo.caption)}")
    if not found:
        say(f"nothing was found in {counted(len(photos), 'caption')}")
    return 0


def read_captions(source: Path, corrections: Path | None = None) -> Iterator[CaptionText]:
    """The captions of an earlier run, as corrected, without those that were rejected. Raises `DataError`."""
    from captioner.folder.corrections import Corrections
    from captioner.retrieval import CaptionText

    given = corrections or found_corrections(source)
    decided = Corrections({}) if given is None else Corrections.read(given)
    photos = list(_read(source))
    decided.match(photo.image for photo in photos)
    if decided.ambiguous:
        say(f"not used: corrections of {decided.ambiguous[0]}, which may be of several photos")
    count = 0
    for photo in photos:
        record: Mapping[str, Any] = {"image": photo.image, "caption": photo.caption}
        record = decided.decide(record) or record
        if "error" not in record:  # rejected
            count += 1
            is_same = record["caption"] == photo.caption
            yield photo if is_same else CaptionText(photo.image, record["caption"])
    if not count:
        raise DataError(f"{source}: there are no captions in it")


def _read(source: Path) -> Iterator[CaptionText]:
    from captioner.folder.records import read_records
    from captioner.references import NoCaptionsError, read_references
    from captioner.retrieval import CaptionText

    if not source.exists():
        raise DataError(f"{source}: there is no such folder or file")
    if source.is_file() and source.suffix.lower().removeprefix(".") in (*PICTURES, *RAW):
        raise DataError(
            f"{source} is a photo: search finds photos by their captions, in the folder or the file of "
            "captions that captioner batch wrote"
        )
    captions = source / _CAPTIONS if source.is_dir() else source
    if captions.suffix == ".jsonl" and captions.is_file():
        for record in read_records(captions):
            if isinstance(record.get("caption"), str):
                yield CaptionText(str(record["image"]), record["caption"], others=tuple(_others(record)))
        return
    try:
        images = read_references(source, divided=False, xmp=True)
    except NoCaptionsError as error:
        how = shlex.join(["captioner", "batch", str(source), "-o", str(captions)])
        raise DataError(f"{source}: there are no captions in this folder yet; make them by: {how}") from error
    for image in images:
        yield CaptionText(image.name, image.captions[0], image.captions[1:])


def _others(record: Mapping[str, Any]) -> Iterator[str]:
    alternatives = record.get("alternatives")
    for other in alternatives if isinstance(alternatives, list) else ():
        if isinstance(other, Mapping) and isinstance(other.get("caption"), str):
            yield other["caption"]


def list_duplicates(folder: Path) -> int:
    """Print the photos of a folder that look alike; the exit status."""
    from captioner.cli.output import report_failure
    from captioner.folder.sources.files import find_photos
    from captioner.images.opening import open_image
    from captioner.retrieval.duplicates import fingerprint, group

    if not folder.is_dir():
        raise OptionsError(f"{folder}: there is no such folder", "source")
    names, prints, failed = [], [], 0
    for photo in find_photos(folder):
        try:
            if photo.problem:  # such as a pipe, at which it would wait for ever
                raise ImageUnreadableError(photo.problem)
            prints.append(fingerprint(open_image(folder / photo.name, target=32)))
            names.append(photo.name)
        except CaptionerError as error:
            report_failure(photo.name, error)
            failed += 1
    groups = group(prints)
    for place, numbers in enumerate(groups):
        print("\n" * bool(place), *(f"{printable(names[number])}\n" for number in numbers), sep="", end="")
    if not groups:
        say(f"no duplicates were found in {counted(len(names), 'photo')}")
    return 1 if failed else 0
