r"""`captioner caption`: a line an image.

By default a line is `IMAGE<TAB>caption`, with control characters written as `\t`, `\n`, `\xNN`, and
`<TAB>caption` below it for each alternative;
with `--json` it is a record in which the name is unchanged.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from captioner.cli.common import (
    add_caption_arguments,
    caption_options,
    image_limits,
    open_captioner,
)
from captioner.cli.inputs import add_input_arguments, caption_inputs
from captioner.cli.output import printable, report_failure
from captioner.errors import CaptionerError

if TYPE_CHECKING:
    from captioner.protocol import Outcome


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "caption",
        help="caption images",
        description="Print a caption for each image, in the order given.",
        epilog="Exit status: 0 all captioned; 1 some images failed, each named on stderr; 2 wrong usage.",
    )
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="image file; - reads one from stdin")
    add_input_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON record per line, with maps")
    form.add_argument("--show", action="store_true", help="print words coloured by probability, and maps")
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    options = caption_options(args)
    if not (args.json or args.show):
        options = dataclasses.replace(options, attention=False)
    failed = False
    with open_captioner(args, draws=args.show) as captioner:
        for name, _, outcome in caption_inputs(captioner, args, args.images, options):
            if isinstance(outcome, CaptionerError):
                failed = True
                report_failure(name, outcome)
            _print(name, outcome, args)
            print(end="", flush=True)  # nothing where stdout was closed before the start
    return int(failed)


def _print(name: str, outcome: Outcome, args: argparse.Namespace) -> None:
    if args.json:
        from captioner.results import error_to_dict

        if isinstance(outcome, CaptionerError):
            record = error_to_dict(name, outcome)
        else:
            record = outcome.to_dict(name)
        print(json.dumps(record))
    elif isinstance(outcome, CaptionerError):
        pass  # it stands on stderr
    elif args.show:
        from rich.console import Console

        from captioner.overlay.terminal import show_caption

        print(printable(name))
        show_caption(outcome, Console(), limits=image_limits(args))
    else:
        print(f"{printable(name)}\t{printable(outcome.text)}")  # a server may send any text
        for other in outcome.alternatives:
            print(f"\t{printable(other.text)}")
