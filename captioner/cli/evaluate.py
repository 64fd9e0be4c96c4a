"""`captioner evaluate`: caption a data set and score the captions."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from captioner.cli.attention_tests import AttentionTests, add_arguments, print_results
from captioner.cli.common import REFERENCES_HELP, add_caption_arguments, caption_options, open_captioner
from captioner.cli.score import print_scores, score_record
from captioner.errors import CaptionerError, DataError, OutputError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "evaluate",
        help="caption a data set and score the captions",
        description="Caption the images of a data set and score the captions against its references; "
        "optionally test whether the attention maps show what the words depend on.",
    )
    parser.add_argument("references", type=Path, metavar="REFERENCES", help=REFERENCES_HELP)
    parser.add_argument(
        "--images",
        type=Path,
        nargs="+",
        metavar="PLACE",
        help="folders or zip files of the images (default: the folder of REFERENCES)",
    )
    parser.add_argument("--split", help="only the images of this split")
    parser.add_argument("-o", "--captions", type=Path, metavar="OUT.jsonl", help="keep the captions")
    parser.add_argument("--json", action="store_true", help="print the scores as one JSON object")
    add_arguments(parser)
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import track

    from captioner.files import replacing
    from captioner.images.files import ImageFiles
    from captioner.metrics import evaluate_captions
    from captioner.references import read_references

    own = args.references if args.references.is_dir() else args.references.parent
    places = args.images or [own]
    if args.captions:
        _check_output(args, places)
    images = read_references(args.references, args.split)
    files = ImageFiles(places)
    tests = AttentionTests(args, images)
    options = dataclasses.replace(caption_options(args), attention=tests.need_maps, attention_size=None)
    captions: dict[str, str] = {}
    lines = []
    with open_captioner(args) as captioner:
        tests.start(captioner)
        console = Console(stderr=True)
        outcomes = track(
            captioner.caption_each((files.read(image.name) for image in images), options),
            "captioning",
            total=len(images),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        try:
            for image, caption in zip(images, outcomes, strict=True):
                if isinstance(caption, CaptionerError):
                    raise DataError(f"{image.name}: {caption}")
                captions[image.name] = caption.text
                lines.append(json.dumps(caption.to_dict(image.name, words=False, alternatives=False)) + "\n")
                tests.add(image, caption)
        finally:
            if args.captions and lines:  # also those before an error or Ctrl-C
                with replacing(args.captions) as file:
                    file.write("".join(lines).encode())
    objects = {image.name: image.objects for image in images}
    scores = evaluate_captions(
        captions,
        {image.name: image.captions for image in images},
        objects=objects if any(objects.values()) else None,
    )
    found = tests.results()
    if args.json:
        print(json.dumps({**score_record(scores), **{name: each.to_dict() for name, each in found.items()}}))
    else:
        print_scores(scores, as_json=False)
        print_results(found)
    return 0


def _check_output(args: argparse.Namespace, places: Sequence[Path]) -> None:
    """Before anything is captioned, so that no work is lost. `places` have the images."""
    from captioner.folder.outputs.files import check_folder, check_no_input

    check_folder(args.captions)
    if args.captions.is_dir():
        raise OutputError(f"cannot write {args.captions}: it is a folder")
    from captioner.references.tables import SIDECAR_SUFFIXES

    # Where the references are a folder.
    texts = (text for suffix in SIDECAR_SUFFIXES for text in args.references.rglob(f"*{suffix}"))
    boxes = [args.boxes] if args.boxes else []
    check_no_input(args.captions, [args.references, *texts, *places, *boxes])
