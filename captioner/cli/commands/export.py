"""`captioner export`: from a checkpoint to a bundle."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from captioner.cli.arguments.caption_options import add_search_arguments, caption_options
from captioner.cli.arguments.values import new_path
from captioner.cli.output import say
from captioner.errors import DataError, reason_of
from captioner.options import BUNDLE_OPTIONS, CaptionOptions
from captioner.printable import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    checkpoint: Path
    output: Path
    name: str | None
    card: str | None
    """The text of the model card."""
    images: tuple[Path, ...]
    int8: tuple[Path, ...]
    """Photos that INT8 graphs are fitted to; without any there are none."""
    decoding: CaptionOptions
    checklist_weight: float | None
    avoided: tuple[str, ...]
    """Phrases that captions will not contain."""
    scores: Mapping[str, Mapping[str, float]] | None
    evaluate: Path | None

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        """Raises `DataError` for files that cannot be read."""
        return cls(
            checkpoint=args.checkpoint,
            output=args.output,
            name=args.name,
            card=_read(args.card, "the model card") if args.card else None,
            images=tuple(_photos(args.images or ())),
            int8=tuple(_photos(args.int8 or ())),
            decoding=caption_options(args),
            checklist_weight=args.checklist_weight,
            avoided=_read_phrases(args.avoid) if args.avoid else (),
            scores=dict(map(_read_scores, args.scores)) or None,
            evaluate=args.evaluate,
        )


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "export",
        help="turn a checkpoint into a model bundle",
        description="Write a model bundle, and check that ONNX captions as PyTorch does.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="best.pt or last.pt of a run")
    parser.add_argument("-o", "--output", type=new_path, metavar="BUNDLE", required=True, help="a new folder")
    parser.add_argument("--name", help="name of the model (default: that of the run)")
    parser.add_argument(
        "--card",
        type=Path,
        metavar="FILE",
        help="the model card, Markdown; a table of scores replaces its line <!-- scores -->",
    )
    parser.add_argument(
        "--evaluate",
        type=Path,
        metavar="DATA",
        help="caption the run's validation images with the bundle, and record scores and confidence; DATA is "
        "the --data-root of the training",
    )
    parser.add_argument(
        "--scores",
        nargs="+",
        default=(),
        metavar="DATA=FILE",
        help="record the scores in FILE, the output of captioner evaluate --json, under the name DATA "
        "(default: the validation scores of the training)",
    )
    add_search_arguments(parser, "those of the run; these become the defaults of the bundle", BUNDLE_OPTIONS)
    parser.add_argument(
        "--checklist-weight",
        type=float,
        metavar="W",
        help="bonus added to detected words until they appear in the caption; 0 disables "
        "(default: that of the run)",
    )
    parser.add_argument(
        "--avoid",
        type=Path,
        metavar="FILE",
        help="phrases that captions will not contain, one a line, such as those that the model says far more "
        "often than people do",
    )
    parser.add_argument(
        "--images",
        type=Path,
        nargs="+",
        metavar="IMAGE",
        help="real photos for the check, or folders of them (default: noise)",
    )
    parser.add_argument(
        "--int8",
        type=Path,
        nargs="+",
        metavar="IMAGE",
        help="add INT8 graphs to the bundle, fitted to these: about 200 photos like those of the training, "
        "or folders of them",
    )


def run(args: argparse.Namespace) -> int:
    return export(Request.read(args))


def export(request: Request) -> int:
    """Write the bundle; the exit status."""
    from captioner.export.bundle import export_bundle
    from captioner.files.destination import writing
    from captioner.files.whole_folder import hold_place

    with writing(request.output), hold_place(request.output):
        parity = export_bundle(
            request.checkpoint,
            request.output,
            name=request.name,
            card=request.card,
            images=request.images,
            int8_photos=request.int8,
            decoding=request.decoding,
            checklist_weight=request.checklist_weight,
            avoided=request.avoided,
            scores=request.scores,
            evaluate=request.evaluate,
        )
    size = sum(path.stat().st_size for path in request.output.iterdir())
    say(
        f"{request.output}: {size / 1e6:.1f} MB; "
        f"{counted(parity.captions, 'caption')} alike in ONNX and PyTorch, "
        f"log-probabilities within {parity.log_prob:.1e}, attention within {parity.attention:.1e}"
    )
    if not request.int8:
        say(
            "without --int8 PHOTOS it has no INT8 graphs: it is slower on many CPUs than the"
            " embedded model, and a few captions differ from those in INT8"
        )
    return 0


def _read_phrases(path: Path) -> tuple[str, ...]:
    lines = map(str.strip, _read(path, "the phrases").splitlines())
    return tuple(line for line in lines if line)


def _photos(places: Iterable[Path]) -> Iterator[Path]:
    """Each folder replaced by the photos in it and below it. Raises `DataError`, also where one of them is
    no file: it would wait for ever at a pipe."""
    from captioner.folder.sources.files import find_photos

    for place in places:
        if not place.is_dir():
            yield place
            continue
        for photo in find_photos(place):
            if photo.problem:
                raise DataError(f"{place / photo.name}: {photo.problem}")
            yield place / photo.name


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {what} {path}: {reason_of(error)}") from None


def _read_scores(text: str) -> tuple[str, dict[str, float]]:
    name, _, file = text.partition("=")
    try:
        values = json.loads(Path(file).read_bytes())
        return name, {key: float(value) for key, value in values.items() if isinstance(value, (int, float))}
    except (OSError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        reason = reason_of(error)
        raise DataError(f"--scores takes DATA=FILE with scores as JSON, got {text!r}: {reason}") from None
