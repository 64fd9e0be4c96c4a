"""`captioner evaluate`: caption a data set and score the captions."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli.arguments.caption_options import caption_options
from captioner.cli.arguments.model import (
    LocalModel,
    ServedModel,
    add_caption_arguments,
    chosen_model,
    image_limits,
)
from captioner.cli.arguments.scoring import REFERENCES_HELP, add_meteor_arguments, load_meteor
from captioner.cli.arguments.values import new_path
from captioner.cli.commands.evaluate.attention_tests import (
    AttentionTestRequest,
    AttentionTests,
    add_arguments,
    print_results,
)
from captioner.cli.output import report_failure, say, with_progress
from captioner.cli.scores import print_scores, scores_to_json
from captioner.errors import CaptionerError, DataError, ImageError, ImageUnreadableError, OutputError
from captioner.readable_json import dump_json, dump_record

if TYPE_CHECKING:
    from captioner.images.limits import ImageLimits
    from captioner.options import CaptionOptions
    from captioner.protocol import ImageCaptioner
    from captioner.references.files import ImageFiles
    from captioner.references.image import CaptionedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    references: Path
    places: tuple[Path, ...]
    """Folders and archives of the images."""
    split: str | None
    model: LocalModel | ServedModel
    options: CaptionOptions
    tests: AttentionTestRequest
    meteor_data: str | None
    meteor: bool
    output: Path | None
    as_json: bool
    limits: ImageLimits

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        own = args.references if args.references.is_dir() else args.references.parent
        tests = AttentionTestRequest.read(args)
        request = cls(
            references=args.references,
            places=tuple(args.images or [own]),
            split=args.split,
            model=chosen_model(args),
            options=caption_options(args, attention=tests.need_maps, attention_size=None),
            tests=tests,
            meteor_data=args.meteor_data,
            meteor=not args.no_meteor,
            output=args.output,
            as_json=args.json,
            limits=image_limits(args),
        )
        if request.output is not None:
            _check_output(request, request.output)
        return request


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
    parser.add_argument("-o", "--output", type=new_path, metavar="OUT.jsonl", help="keep the captions")
    parser.add_argument("--json", action="store_true", help="print the scores as one JSON object")
    add_meteor_arguments(parser)
    add_arguments(parser)
    add_caption_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return evaluate(Request.read(args))


def evaluate(request: Request) -> int:
    """Caption and score the images, and print the scores; the exit status."""
    from captioner.metrics import evaluate_captions
    from captioner.references import read_references
    from captioner.references.files import ImageFiles

    images = read_references(request.references, request.split)
    files = ImageFiles(request.places, request.limits)
    _, faults = files.places(image.name for image in images)
    for fault in faults.values():
        raise DataError(f"{len(faults)} of {len(images)} photos cannot be found; the first: {fault}")
    tests = AttentionTests(request.tests, images)
    with request.model.open() as captioner:
        tests.start(captioner)
        meteor = load_meteor(request.meteor_data) if request.meteor else False
        captions, failed, is_kept = _caption(request, captioner, images, files, tests)
    if failed:
        raise DataError(f"{failed} of {len(images)} photos cannot be captioned")
    objects = {image.name: image.objects for image in images}
    scores = evaluate_captions(
        captions,
        {image.name: image.captions for image in images},
        objects=objects if any(objects.values()) else None,
        meteor=meteor,
    )
    found = tests.results()
    if request.as_json:
        print(dump_json({**scores_to_json(scores), **{name: each.to_dict() for name, each in found.items()}}))
    else:
        print_scores(scores)
        print_results(found)
    return 0 if is_kept else OutputError.exit_status


def _caption(
    request: Request,
    captioner: ImageCaptioner,
    images: Sequence[CaptionedImage],
    files: ImageFiles,
    tests: AttentionTests,
) -> tuple[dict[str, str], int, bool]:
    """The captions by the names of the images; how many images failed, which are reported; and whether the
    output, if there is one, was written."""

    asked = captioner.caption_each((_read(files, image.name) for image in images), request.options)
    outcomes = with_progress(asked, "captioning", len(images))
    captions: dict[str, str] = {}
    lines, failed = [], 0
    try:
        for image, caption in zip(images, outcomes, strict=True):
            if isinstance(caption, CaptionerError):
                failed += 1
                report_failure(image.name, caption)
                continue
            captions[image.name] = caption.text
            record = caption.to_dict(image.name, words=False, alternatives=False)
            lines.append(dump_record(record) + "\n")
            tests.add(image, caption)
    finally:
        # Also those before an error or Ctrl-C.
        is_kept = request.output is None or not lines or _write(request.output, lines)
    return captions, failed, is_kept


def _write(output: Path, lines: Sequence[str]) -> bool:
    """Whether the captions could be written. If not, this is reported: the scores are worth as much."""
    from captioner.files.destination import replacing

    try:
        with replacing(output) as file:
            file.write("".join(lines).encode())
    except OutputError as error:
        say(str(error))
        return False
    return True


def _read(files: ImageFiles, name: str) -> bytes | ImageError:
    """The content of an image, or what is wrong with it."""
    try:
        return files.read(name)
    except DataError as error:  # damaged in an archive, for instance
        return ImageUnreadableError(str(error))


def _check_output(request: Request, output: Path) -> None:
    """Before anything is captioned, so that no work is lost."""
    from captioner.folder.outputs.place import check_folder, check_no_input
    from captioner.references.sidecars import SIDECAR_SUFFIXES

    check_folder(output)
    if output.is_dir():
        raise OutputError(f"cannot write {output}: it is a folder")
    # Where the references are a folder.
    texts = (text for suffix in SIDECAR_SUFFIXES for text in request.references.rglob(f"*{suffix}"))
    boxes = [request.tests.boxes] if request.tests.boxes else []
    check_no_input(output, [request.references, *texts, *request.places, *boxes])
