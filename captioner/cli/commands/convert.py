"""`captioner convert`: write the captions of an earlier run in other formats, without captioning again."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.outputs import (
    OUTPUT_HELP,
    OutputRequest,
    add_format_argument,
    add_output_arguments,
    make_transform,
    output_fields,
    output_options,
    read_corrections,
    say_unused_corrections,
    unmatched_corrections,
)
from captioner.cli.arguments.text import add_text_arguments
from captioner.cli.arguments.values import named
from captioner.cli.output import report_failure, say
from captioner.errors import DataError, OptionsError
from captioner.printable import counted

if TYPE_CHECKING:
    from captioner.options import CaptionOptions


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "convert",
        help="write the captions of an earlier run in other formats",
        description="Write the captions in a .jsonl or .csv file of captioner batch in other formats, "
        "without captioning again. Running the same command again writes what has changed.",
    )
    parser.add_argument(
        "captions",
        type=Path,
        metavar="CAPTIONS",
        help="JSON Lines, or CSV, also as a spreadsheet has saved it",
    )
    parser.add_argument("-o", "--output", type=named, required=True, metavar="OUT", help=OUTPUT_HELP)
    add_format_argument(parser)
    parser.add_argument(
        "--images", type=Path, metavar="ROOT", help="folder of the photos (default: OUT, if it is a folder)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only failures on stderr")
    add_output_arguments(parser.add_argument_group("output"))
    add_text_arguments(parser.add_argument_group("text"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertRequest(OutputRequest):
    """What a command line of `captioner convert` asks for."""

    captions: Path
    root: Path | None
    """The folder of the photos."""

    @classmethod
    def read(cls, args: argparse.Namespace) -> ConvertRequest:
        """Raises `OptionsError`, and `DataError` if the folder of the photos is none."""
        if args.output == "-":
            raise OptionsError("- is not a file name: convert writes files, also /dev/stdout", "output")
        out = Path(args.output)
        root = args.images or (out if out.is_dir() else None)
        if root is not None and not root.is_dir():
            raise DataError(f"{root}: there is no such folder")
        return cls(captions=args.captions, root=root, **output_fields(args))


def run(args: argparse.Namespace) -> int:
    return convert(ConvertRequest.read(args))


def convert(request: ConvertRequest) -> int:
    """Write what has changed; the exit status."""
    from captioner.files.new_folders import removing_unused
    from captioner.folder.outputs import make_output, output_files
    from captioner.folder.outputs.place import check_no_input
    from captioner.folder.recorded import RecordedEngine, RecordedSource
    from captioner.folder.records import MAX_RECORD_BYTES
    from captioner.folder.run import FolderRun, RunOptions

    for output in output_files(request.output, request.format):
        check_no_input(output, [request.captions, *request.input_files])
    out = Path(request.output)
    with removing_unused(out), closing(RecordedSource(request.captions, request.root)) as source:
        options = _options(request, source.first())
        corrections = read_corrections(request)
        transform = make_transform(request, None, corrections, is_recorded=True)
        wanted = output_options(request, options, None, transform, request.root)
        run = FolderRun(
            [source],
            RecordedEngine(),
            make_output(request.output, wanted, request.format),
            options,
            RunOptions(max_bytes=MAX_RECORD_BYTES, overwrite=request.overwrite),
            transform=transform,
            listed=corrections.match if corrections else None,
        )
        with run:
            if corrections and not request.quiet:
                for text in unmatched_corrections(corrections):
                    say(text)
            for _ in run:
                pass
            for result in run.failures():
                report_failure(result.image, str(result.error))
            failed, low_confidence = run.count_failed()
        if not request.quiet:
            more = f", {low_confidence} left out" if low_confidence else ""
            say(f"{counted(run.total, 'image')} in {request.output}, {failed} of them failed{more}")
    say_unused_corrections(request, request.captions)
    return 1 if failed else 0


def _options(request: ConvertRequest, first: Mapping[str, Any]) -> CaptionOptions:
    """With the words and alternatives that the first record has, if the output can hold them. Raises
    `OptionsError` if it lacks the keywords that are to be written."""
    from captioner.folder.outputs import choose_format, has_words
    from captioner.options import CaptionOptions

    lacks_keywords = request.written["keywords"] and "keywords" not in first
    has_own = "xmp" in (request.format or choose_format(request.output))  # those of the caption
    if lacks_keywords and not has_own:
        raise OptionsError(f"--keywords: {request.captions} has none; captioner batch --keywords adds them")
    keeps = has_words(request.output, request.format)
    return CaptionOptions(
        attention=keeps and "words" in first,
        alternatives=len(first.get("alternatives", ())) if keeps else 0,
    )
