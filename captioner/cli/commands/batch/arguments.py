"""The flags of `captioner batch`."""

from __future__ import annotations

import argparse
from pathlib import Path

from captioner.cli.arguments.inputs import add_keywords_argument
from captioner.cli.arguments.model import add_caption_arguments
from captioner.cli.arguments.text import add_style_argument
from captioner.cli.arguments.values import named, positive
from captioner.folder.outputs import FORMATS

OUTPUT_HELP = "file to write; or folder, which ends with / or is there already (default: .txt files)"


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


def add_text_arguments(group: argparse._ArgumentGroup) -> None:
    add_style_argument(group)
    group.add_argument("--prefix", default="", metavar="TEXT", help="put TEXT before each caption")
    group.add_argument("--suffix", default="", metavar="TEXT", help="put TEXT after each caption")
    group.add_argument(
        "--template",
        default="{caption}",
        metavar="TEXT",
        help="write TEXT with {caption}, {name}, {stem} and {folder} filled in",
    )
    group.add_argument("--capitalize", action="store_true", help="capitalize the first letter")
    group.add_argument(
        "--sentence", action="store_true", help="capitalize the first letter and end with a full stop"
    )
    group.add_argument(
        "--drop-openings", action="store_true", help="remove openings such as 'a photo of' and 'there is'"
    )
    group.add_argument(
        "--min-confidence",
        type=float,
        metavar="P",
        help="leave out captions whose confidence is below P, 0 to 1",
    )
