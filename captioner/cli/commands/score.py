"""`captioner score`: score captions against human references. All scores are multiplied by 100."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.cli.arguments.values import given_flags, named
from captioner.cli.output import say
from captioner.cli.table import print_table
from captioner.errors import DataError, OptionsError, how_to_install
from captioner.printable import counted, printable
from captioner.readable_json import dump_json

if TYPE_CHECKING:
    from captioner.metrics import Comparison, Meteor, Scores
    from captioner.references import CaptionedImage

REFERENCES_HELP = (
    "captions that people wrote: JSON of Karpathy or COCO, Flickr8k tokens, CSV with the columns image and "
    "caption, JSON lines (corrections of a gallery, too), or a folder of photos with text files"
)
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


def add_meteor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--meteor-data` and `--no-meteor`; None if they are not given."""
    meteor = parser.add_mutually_exclusive_group()
    meteor.add_argument(
        "--meteor-data",
        type=named,
        metavar="FOLDER",
        help="METEOR 1.5's archive and paraphrases (default: those of an installed pycocoevalcap)",
    )
    meteor.add_argument(
        "--no-meteor", action="store_true", default=None, help="leave out METEOR, which takes seconds"
    )


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
            print(dump_json(score_record(scores)))
        else:
            print_scores(scores)
    else:
        comparison = compare_captions(systems[0], systems[1], references, **options)
        if request.as_json:
            print(dump_json(_comparison_record(comparison)))
        else:
            names = [printable(Path(path).name) for path in (request.captions, request.compare) if path]
            _print_comparison(comparison, names)
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


def load_meteor(data: str | None) -> Meteor:
    """METEOR with the data of this folder, or of pycocoevalcap; says on stderr which variant it is.

    Raises `DataError`."""
    from captioner.metrics import Meteor
    from captioner.metrics.tables import label

    meteor = Meteor.load(data)
    if meteor.key != "meteor":
        say(f"{label(meteor.key)}; for METEOR 1.5: {how_to_install('metrics')}")
    return meteor


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


def score_record(scores: Scores) -> dict[str, Any]:
    """The JSON object for `--json`."""
    return {
        **scores.to_dict(),
        "intervals": {name: _times_100(interval) for name, interval in scores.intervals.items()},
    }


def _comparison_record(comparison: Comparison) -> dict[str, Any]:
    return {
        "first": score_record(comparison.first),
        "second": score_record(comparison.second),
        "differences": {
            name: {
                "value": round(100 * difference.value, 4),
                "interval": _times_100(difference.interval),
                "p_value": round(difference.p_value, 4),
            }
            for name, difference in comparison.differences.items()
        },
    }


def _times_100(interval: tuple[float, float]) -> list[float]:
    return [round(100 * bound, 4) for bound in interval]


def print_scores(scores: Scores) -> None:
    """Print a table to stdout."""
    from captioner.metrics.tables import interval, label, statistics

    rows = [
        [label(name), f"{100 * value:.2f}", interval(scores.intervals[name])]
        for name, value in scores.values.items()
    ]
    print_table(
        [counted(scores.images, "image"), "score", "95% interval"],
        rows,
        list(map(list, statistics(scores).items())),
    )


def _print_comparison(comparison: Comparison, names: Sequence[str]) -> None:
    from captioner.metrics.tables import interval, label, statistics

    first, second = comparison.first, comparison.second
    rows = [
        [
            label(name),
            f"{100 * first.values[name]:.2f}",
            f"{100 * second.values[name]:.2f}",
            f"{100 * difference.value:+.2f}",
            interval(difference.interval, "+.2f"),
            f"{difference.p_value:.3f}",
        ]
        for name, difference in comparison.differences.items()
    ]
    heads = [counted(first.images, "image"), *names, "change", "95% interval", "p"]
    others = statistics(second)
    print_table(heads, rows, [[name, value, others[name]] for name, value in statistics(first).items()])
