"""`captioner average`: one model from several."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from captioner.cli.arguments.values import new_path
from captioner.cli.output import say
from captioner.errors import DataError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "average",
        help="average the weights of several runs",
        description="Write the mean of the weights of runs that started from the same model; it is often "
        "better than each of them. A checkpoint given twice counts twice.",
    )
    parser.add_argument(
        "checkpoints", type=Path, nargs="+", metavar="CHECKPOINT", help="best.pt or last.pt of a run"
    )
    parser.add_argument(
        "-o", "--output", type=new_path, required=True, metavar="AVERAGE.pt", help="a new checkpoint"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    checkpoints: tuple[Path, ...]
    output: Path

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        if args.output.exists():
            raise DataError(f"{args.output} exists already")
        return cls(checkpoints=tuple(args.checkpoints), output=args.output)


def run(args: argparse.Namespace) -> int:
    from captioner.files.destination import writing
    from captioner.training.weights.averages import average_checkpoints

    request = Request.read(args)
    with writing(request.output):
        average_checkpoints(request.checkpoints, request.output)
    say(f"the mean of {len(request.checkpoints)} checkpoints is in {request.output}")
    return 0
