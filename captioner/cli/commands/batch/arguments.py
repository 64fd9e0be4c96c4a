"""The flags of `captioner batch`."""

from __future__ import annotations

import argparse
from pathlib import Path

from captioner.cli.arguments.inputs import add_keywords_argument
from captioner.cli.arguments.model import add_caption_arguments
from captioner.cli.arguments.outputs import OUTPUT_HELP, add_format_argument, add_output_arguments
from captioner.cli.arguments.text import add_text_arguments
from captioner.cli.arguments.values import named, positive


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "batch",
        help="caption a folder of images into a file",
        description="Caption folders, archives and lists of images. Running the same command again resumes "
        "an interrupted run, and captions images that are new or have changed.",
    )
    parser.add_argument(
        "sources", nargs="*", type=named, metavar="FOLDER", help="folder, zip or tar archive of images"
    )
    parser.add_argument("-o", "--output", type=named, required=True, metavar="OUT", help=OUTPUT_HELP)
    add_format_argument(parser)
    _add_input(parser.add_argument_group("input"))
    run = parser.add_argument_group("run")
    again = run.add_mutually_exclusive_group()
    again.add_argument(
        "--resume",
        dest="overwrite",
        action="store_false",
        default=False,
        help="resume an earlier run (the default)",
    )
    again.add_argument("--overwrite", action="store_true", help="caption everything again; replace OUT")
    run.add_argument("--watch", action="store_true", help="keep captioning new photos until interrupted")
    run.add_argument("--retry-failed", action="store_true", help="retry images that failed before")
    run.add_argument("--batch-size", type=positive, metavar="N", help="images per batch (32)")
    run.add_argument("--workers", type=positive, metavar="N", help="image decoding processes (one per core)")
    run.add_argument(
        "--lanes",
        type=positive,
        metavar="N",
        help="batches captioned at the same time, which share the threads (default: by the number of cores)",
    )
    _add_cluster(parser.add_argument_group("cluster (--engine ray)"))
    output = parser.add_argument_group("output")
    add_output_arguments(output)
    output.add_argument(
        "--gallery", type=Path, metavar="OUT.html", help="also write a gallery; needs --attention"
    )
    add_text_arguments(parser.add_argument_group("text"))
    parser.add_argument("--attention", action="store_true", help="write words with their attention maps")
    add_caption_arguments(parser)


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--files-from",
        type=named,
        metavar="LIST",
        help="caption the files named in LIST, one per line, relative to FOLDER; - reads the list from stdin",
    )
    group.add_argument("-0", "--null", action="store_true", help="names in LIST end with null bytes")
    group.add_argument(
        "--pattern",
        action="append",
        metavar="P",
        help="only names matching P, for instance '*.jpg'; repeatable",
    )
    group.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="P",
        help="skip what matches P; repeatable",
    )
    group.add_argument("--hidden", action="store_true", help="include names that start with a dot")
    add_keywords_argument(group)


def _add_cluster(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="ray distributes the work; FOLDER and OUT may then be s3:// or gs:// URIs, OUT is a folder "
        "of Parquet files, and RAY_ADDRESS names the cluster (default: local)",
    )
    group.add_argument("--actors", type=positive, metavar="N", help="parallel models (2)")
    group.add_argument("--cpus-per-actor", type=float, metavar="N", help="default: 1")
    group.add_argument("--gpus-per-actor", type=float, metavar="N", help="default: 0, a CPU")
    group.add_argument("--shard-size", type=positive, metavar="N", help="images in one file of OUT (10000)")
