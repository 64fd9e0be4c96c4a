"""`captioner score`: score captions against human references. All scores are multiplied by 100."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.scoring import REFERENCES_HELP, add_meteor_arguments, load_meteor
from captioner.cli.arguments.values import given_flags, named
from captioner.cli.output import say
from captioner.cli.scores import comparison_to_json, print_comparison, print_scores, scores_to_json
from captioner.cli.table import print_table
from captioner.errors import DataError, OptionsError
from captioner.printable import counted, printable
from captioner.readable_json import dump_json

if TYPE_CHECKING:
    from captioner.references import CaptionedImage

_SAMPLES, _MOST_SAMPLES, _SEED = 1000, 100_000, 0
_CAPTION_OPTIONS = ("compare", "split_list", "meteor_data", "no_meteor", "samples", "seed")
"""Options for references that are captions, not labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    captions: str
    compare: str | None
    references: str
    are_labels: bool
    """Whether the references are words for each photo, not captions."""
    split: str | None
    split_list: str | None
    meteor_data: str | None
    meteor: bool
    samples: int
    seed: int
    as_json: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        if args.labels:
            for name, flag in given_flags(args, _CAPTION_OPTIONS):
                raise OptionsError(f"--labels cannot be combined with {flag}", name)
        samples = _SAMPLES if args.samples is None else args.samples
        seed = _SEED if args.seed is None else args.seed
        if not 1 <= samples <= _MOST_SAMPLES or seed < 0:
            raise OptionsError(f"--samples must be from 1 to {_MOST_SAMPLES} and --seed at least 0")
        return cls(
            captions=args.captions,
            compare=args.compare,
            references=args.references,
            are_labels=args.labels,
            split=args.split,
            split_list=args.split_list,
            meteor_data=args.meteor_data,
            meteor=not args.no_meteor,
            samples=samples,
            seed=seed,
            as_json=args.json,
        )


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "score",
        help="score captions against references",
        description="Score captions with BLEU, METEOR, ROUGE-L and CIDEr-D, times 100, with 95% confidence "
        "intervals over images, and measure their diversity; if the references list objects, also measure "
        "mentioned objects that are absent (CHAIR). Images are matched by file name, without "
        "folder and extension; every image of the references must have a caption.",
    )
    parser.add_argument(
        "captions",
        metavar="CAPTIONS",
        help="JSON lines, CSV or Parquet as captioner batch writes them, COCO results JSON, or a folder of "
        "photos with text or XMP files",
    )
    parser.add_argument("references", metavar="REFERENCES", help=REFERENCES_HELP)
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--split", help="score this split of the references only; several with +")
    part.add_argument(
        "--split-list", type=named, metavar="FILE", help="score the images named in FILE only, one a line"
    )
    parser.add_argument(
        "--compare",
        type=named,
        metavar="OTHER",
        help="also score OTHER, and the difference CAPTIONS minus OTHER (paired bootstrap)",
    )
    parser.add_argument(
        "--labels",
        action="store_true",
        help="REFERENCES is a label file (words for each photo): count captions that name a label",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of a table")
    add_meteor_arguments(parser)
    parser.add_argument("--samples", type=int, metavar="N", help=f"bootstrap samples ({_SAMPLES})")
    parser.add_argument("--seed", type=int, metavar="N", help=f"seed of the bootstrap ({_SEED})")


def run(args: argparse.Namespace) -> int:
    return score(Request.read(args))


def score(request: Request) -> int:
    """Score captions, and print the scores; the exit status."""
    if request.are_labels:
        return _score_names(request)
    from captioner.metrics import compare_captions, evaluate_captions
    from captioner.metrics.captions import objects_by_image, read_captions, references_by_image
    from captioner.metrics.evaluation import check_complete
    from captioner.references import read_references

    def read_images(path: str) -> list[CaptionedImage]:
        if request.split_list:
            return read_references(path, "listed", split_lists={"listed": request.split_list})
        return read_references(path, request.split)

    captions, images = _read(request, read_images)
    references = references_by_image(images)
    systems = [captions, *([read_captions(request.compare, images)] if request.compare else [])]
    for path, captions in zip((request.captions, request.compare), systems, strict=False):
        check_complete(captions, references, f"{path}: ")
        if not any(map(str.strip, captions.values())):
            say(f"{path}: all captions are empty")
    options: dict[str, Any] = {
        "objects": objects_by_image(images),
        "meteor": load_meteor(request.meteor_data) if request.meteor else False,
        "samples": request.samples,
        "seed": request.seed,
    }
    if len(systems) == 1:
        scores = evaluate_captions(systems[0], references, **options)
        if request.as_json:
            print(dump_json(scores_to_json(scores)))
        else:
            print_scores(scores)
    else:
        comparison = compare_captions(systems[0], systems[1], references, **options)
        if request.as_json:
            print(dump_json(comparison_to_json(comparison)))
        else:
            names = [printable(Path(path).name) for path in (request.captions, request.compare) if path]
            print_comparison(comparison, names)
    return 0


def _read(
    request: Request, read_images: Callable[[str], list[CaptionedImage]]
) -> tuple[dict[str, str], list[CaptionedImage]]:
    """The captions, and the images of the references. Raises `DataError`, which says if the two may be
    exchanged: read the other way round, they are right."""
    from captioner.metrics.captions import check_keys, read_captions

    def read(captions: str, references: str) -> tuple[dict[str, str], list[CaptionedImage]]:
        images = read_images(references)
        check_keys(images)
        return read_captions(captions, images), images

    try:
        return read(request.captions, request.references)
    except DataError as error:
        try:
            read(request.references, request.captions)
        except DataError:
            raise error from None
        raise DataError(f"{error} (the order is CAPTIONS REFERENCES: are they exchanged?)") from None


def _score_names(request: Request) -> int:
    """Score captions against labels."""
    from captioner.metrics.naming import score_naming
    from captioner.metrics.tables import label
    from captioner.references import read_label_file, select_split

    def read_images(path: str) -> list[CaptionedImage]:
        images = read_label_file(Path(path))
        return select_split(Path(path), images, request.split) if request.split else images

    captions, images = _read(request, read_images)
    scores = score_naming(captions, {image.key: image.words for image in images})
    if request.as_json:
        print(dump_json(scores.to_dict()))
        return 0
    rows = [[label(name), f"{value:.2f}"] for name, value in scores.to_dict().items() if name != "images"]
    print_table([counted(scores.photos, "image"), "share"], rows)
    return 0
