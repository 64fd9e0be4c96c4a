r"""`captioner caption`: a line an image.

By default a line is `IMAGE<TAB>caption`, with control characters written as `\t`, `\n`, `\xNN`, and
`<TAB>caption` below it for each alternative; with `--json` it is a record in which the name is unchanged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from captioner.cli.arguments.caption_options import caption_options
from captioner.cli.arguments.inputs import Inputs, add_input_arguments
from captioner.cli.arguments.model import LocalModel, ServedModel, add_caption_arguments, chosen_model
from captioner.cli.arguments.text import add_style_argument
from captioner.cli.arguments.values import named
from captioner.cli.output import report_failure
from captioner.errors import CaptionerError, LowConfidenceError, OptionsError
from captioner.printable import printable

if TYPE_CHECKING:
    from captioner.options import CaptionOptions
    from captioner.protocol import ImageCaptioner, Outcome

_JSON_SUFFIXES = (".jsonl", ".ndjson")
_OF_BATCH = {".csv": "", ".parquet": "", ".xmp": " --format xmp", ".caption": " --format caption"}
"""Suffixes of what batch writes, and the flag where its OUT is a folder. A .txt file may have lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    inputs: Inputs
    model: LocalModel | ServedModel
    options: CaptionOptions
    style: str
    form: str
    """ "text", "json" or "show"."""
    min_confidence: float | None
    with_confidence: bool
    output: Path | None

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        form = "json" if args.json else "show" if args.show else "text"
        output = None if args.output in (None, "-") else Path(args.output)
        if output is not None:
            _check_output(output, args.images)
            if args.show:
                raise OptionsError("--show is for the terminal, not for --output", "output")
            if output.suffix.lower() in _JSON_SUFFIXES:
                form = "json"
        if args.min_confidence is not None:
            from captioner.folder.confidence import check_minimum

            check_minimum(args.min_confidence)
        return cls(
            inputs=Inputs.read(args),
            model=chosen_model(args, draws=args.show),
            options=caption_options(args, attention=form != "text"),
            style=args.style,
            form=form,
            min_confidence=args.min_confidence,
            with_confidence=args.confidence,
            output=output,
        )


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "caption",
        help="caption images",
        description="Print a caption for each image, in the order given.",
    )
    add_input_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON record per line, with maps")
    form.add_argument("--show", action="store_true", help="print words coloured by probability, and maps")
    parser.add_argument("--confidence", action="store_true", help="print the confidence behind each caption")
    parser.add_argument(
        "--min-confidence",
        type=float,
        metavar="P",
        help="leave out captions whose confidence is below P, 0 to 1; each is named on stderr",
    )
    add_style_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=named,
        metavar="OUT",
        help="write the lines to this file instead (- is stdout), JSON records if it ends in .jsonl; for "
        "folders and other formats see captioner batch",
    )
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return caption(Request.read(args))


def caption(request: Request) -> int:
    """Caption the images; the exit status."""
    status = 0
    with _opened(request.output) as file, request.model.open() as captioner:
        _check_confidence(request, captioner)
        for name, _, outcome in request.inputs.caption(captioner, request.options):
            outcome = _believed(outcome, request.min_confidence)
            if isinstance(outcome, CaptionerError):
                report_failure(name, outcome)
                if not isinstance(outcome, LowConfidenceError):  # which was asked for
                    status = max(status, outcome.exit_status)
            else:
                outcome = outcome.in_style(request.style)
            for line in _lines(name, outcome, request):
                print(line, file=file)
            file.flush()
    return status


def _check_output(path: Path, images: list[str]) -> None:
    """Before anything is captioned, so that no work is lost."""
    from captioner.folder.outputs.place import check_folder, check_no_input

    suffix = path.suffix.lower()
    if suffix == ".json":
        raise OptionsError(
            f"caption writes JSON records into .jsonl; captioner batch FOLDER -o {path.name} writes COCO",
            "output",
        )
    if (flag := _OF_BATCH.get(suffix)) is not None:
        out = f"FOLDER{flag}" if flag else path.name
        raise OptionsError(f"captioner batch FOLDER -o {out} writes {suffix} files", "output")
    if path.is_dir():
        raise OptionsError(f"--output: {path} is a folder; captioner batch writes into folders", "output")
    check_folder(path)
    check_no_input(path, images)


def _check_confidence(request: Request, captioner: ImageCaptioner) -> None:
    if request.with_confidence or request.min_confidence is not None:
        from captioner.folder.confidence import check_calibrated

        flag = "--confidence" if request.with_confidence else "--min-confidence"
        check_calibrated(captioner.calibration, flag)


@contextmanager
def _opened(path: Path | None) -> Iterator[IO[str]]:
    """stdout, or a file that is in place when the block has ended, also by an error or Ctrl-C."""
    if path is None:
        yield sys.stdout
        return
    from io import StringIO

    from captioner.files.destination import replacing

    lines = StringIO()
    try:
        yield lines
    finally:
        if text := lines.getvalue():
            with replacing(path) as file:
                file.write(text.encode("utf-8", "surrogateescape"))


def _believed(outcome: Outcome, minimum: float | None) -> Outcome:
    if minimum is None or isinstance(outcome, CaptionerError) or outcome.confidence is None:
        return outcome
    if outcome.confidence >= minimum:
        return outcome
    return LowConfidenceError(f"left out: confidence {outcome.confidence:.2f} is below {minimum}")


def _lines(name: str, outcome: Outcome, request: Request) -> Iterator[str]:
    if request.form == "json":
        from captioner.readable_json import dump_record
        from captioner.results import error_to_dict

        if isinstance(outcome, CaptionerError):
            yield dump_record(error_to_dict(name, outcome))
        else:
            yield dump_record(outcome.to_dict(name))
    elif isinstance(outcome, CaptionerError):
        return  # it stands on stderr
    elif request.form == "show":
        from rich.console import Console

        from captioner.overlay.terminal import show_caption

        print(printable(name))
        show_caption(outcome, Console(), limits=request.inputs.limits)
    else:
        # A server may send any text.
        sure = f"\t{outcome.confidence:.2f}" if request.with_confidence else ""
        yield f"{printable(name)}\t{printable(outcome.text)}{sure}"
        for other in outcome.alternatives:
            yield f"\t{printable(other.text)}"
