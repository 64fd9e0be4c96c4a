"""`captioner average`: one model from several."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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
        "-o", "--out", type=Path, required=True, metavar="AVERAGE.pt", help="a new checkpoint"
    )


def run(args: argparse.Namespace) -> int:
    from captioner.training.weights.averages import average_checkpoints

    if args.out.exists():
        raise DataError(f"{args.out} exists already")
    average_checkpoints(args.checkpoints, args.out)
    print(f"captioner: the mean of {len(args.checkpoints)} checkpoints is in {args.out}", file=sys.stderr)
    return 0
