"""`captioner teach`: from corrected captions to a model that was taught."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli.arguments.model import add_device_argument, add_model_argument, add_threads_argument
from captioner.cli.arguments.values import new_path
from captioner.cli.output import say
from captioner.cli.table import print_table
from captioner.cores import check_parallel
from captioner.errors import DataError, clip
from captioner.files.whole_folder import hold_place, is_taken
from captioner.printable import printable

if TYPE_CHECKING:
    from captioner.teaching.effects import Effect
    from captioner.teaching.lesson import Lesson
    from captioner.teaching.teach import Taught

_MOST_SHOWN = 5
"""Captions of corrected photos, and of photos like them, that are shown."""
_HEADS = ["photos", "number", "changed", "as written before", "after", "CIDEr before", "after", ""]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "teach",
        help="teach a model corrected captions",
        description="Teach a model the corrected captions of some photos of a folder. Photos that are"
        " unlike these keep their captions. The table at the end says what changed; a model that got worse is"
        " not kept.",
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="photos, most of them without corrections"
    )
    parser.add_argument(
        "corrections",
        type=Path,
        metavar="CORRECTIONS",
        help="corrections of a gallery, the CSV or JSON lines of captioner batch with captions that you"
        " changed, or captions in another format of captioner train",
    )
    parser.add_argument("--name", default="taught", help="name of the new model (default: %(default)s)")
    parser.add_argument(
        "-o",
        "--output",
        type=new_path,
        metavar="BUNDLE",
        help="a new folder for the model (default: among the models of captioner model list)",
    )
    parser.add_argument("--force", action="store_true", help="keep the model even if it got worse")
    add_model_argument(parser)
    add_device_argument(parser)
    add_threads_argument(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a command line asks for."""

    folder: Path
    corrections: Path
    name: str
    output: Path
    model: Path
    device: str
    threads: int | None
    force: bool

    @classmethod
    def read(cls, args: argparse.Namespace) -> Request:
        """Raises `DataError` for what is not there, or is there already."""
        from captioner.model.bundle import DEFAULT, check_name
        from captioner.model.installed import installed_models, provided_models, taught_folder, used_model

        try:
            check_name(args.name)
        except ValueError as error:
            raise DataError(f"--name: {args.name!r} cannot be the name of a model: {error}") from None
        if not args.name.strip(". ") or Path(args.name).name != args.name:
            raise DataError(f"--name: {args.name!r} cannot be the name of a model")
        if args.name in provided_models():
            raise DataError(f"--name: there is an installed model {args.name}; choose another name")
        if not args.folder.is_dir():
            raise DataError(f"there is no folder {args.folder}")
        if not args.corrections.exists():
            raise DataError(f"there is no file {args.corrections}")
        output = args.output or taught_folder() / args.name
        if is_taken(output):
            taught = output in installed_models().values()
            how = f"remove it (captioner model remove {shlex.quote(output.name)})" if taught else "delete it"
            raise DataError(f"{output} exists already; choose another --name or -o, or {how}")
        check_parallel("threads", args.threads)
        return cls(
            folder=args.folder,
            corrections=args.corrections,
            name=args.name,
            output=output,
            model=used_model(args.model) or DEFAULT,
            device=args.device or "auto",
            threads=args.threads,
            force=args.force,
        )


def run(args: argparse.Namespace) -> int:
    request = Request.read(args)
    with hold_place(request.output):  # before PyTorch is imported, which takes seconds
        lesson, taught = _teach(request)
    report(lesson, taught)
    if taught.harm and not request.force:
        raise DataError(f"the model was not kept: {'; '.join(taught.harm)}; --force keeps it as it is")
    for text in taught.harm:
        say(f"kept although {text}")
    shown = request.output if args.output else request.name
    say(f"the model is in {request.output}: captioner model use {shlex.quote(str(shown))}")
    return 0


def _teach(request: Request) -> tuple[Lesson, Taught]:
    import torch

    from captioner.files.destination import writing
    from captioner.teaching.teach import read_lesson, teach
    from captioner.training.device import torch_device

    if request.threads is not None:
        torch.set_num_threads(request.threads)
    lesson = read_lesson(request.folder, request.corrections, request.model)
    with writing(request.output):
        taught = teach(
            lesson,
            request.output,
            start=request.model,
            name=request.name,
            device=str(torch_device(request.device)),
            force=request.force,
        )
    return lesson, taught


def report(lesson: Lesson, taught: Taught) -> None:
    """Print what teaching changed."""
    print_effects(taught.effects)
    if taught.missed:
        print(f"{len(taught.missed)} of {len(lesson.taught)} corrections were not learnt word by word:")
    for photo, said in list(taught.missed.items())[:_MOST_SHOWN]:
        print(printable(f"{photo}: {said} (corrected: {clip(lesson.taught[photo][0])})"))
    for photo, (before, after) in list(taught.changed.items())[:_MOST_SHOWN]:
        print(printable(f"{photo}: {before} -> {after}"))


def print_effects(effects: Sequence[Effect]) -> None:
    """Print a row for the photos of each effect."""
    print_table(_HEADS, [_row(effect) for effect in effects])


def _row(effect: Effect) -> list[str]:
    from captioner.teaching.effects import TOO_FEW

    scores = [""] * 4
    if effect.before and effect.after:
        both = (effect.before, effect.after)
        scores = [f"{100 * one.as_written:.0f}%" for one in both] + [f"{one.cider:.0f}" for one in both]
    share = f"{100 * effect.share:.0f}%" if effect.count else ""
    few = "too few to tell" if effect.count < TOO_FEW else ""
    return [effect.photos, str(effect.count), share, *scores, few]
