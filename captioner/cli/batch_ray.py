"""`captioner batch --engine ray`."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, NoReturn

from captioner.cli.arguments.model import check_no_server_flags, image_limits
from captioner.cli.arguments.search import caption_options
from captioner.cli.arguments.values import given_flags
from captioner.cli.batch_arguments import RAY_OPTIONS
from captioner.cli.batch_inputs import make_transform, read_list, text_options
from captioner.cli.output import INTERRUPTED, printable
from captioner.errors import OptionsError

if TYPE_CHECKING:
    from captioner.folder.ray_engine import RayRun

_REJECTED = {
    "server": "its actors hold models of their own",
    "device": "--gpus-per-actor says what an actor runs on",
    "threads": "--cpus-per-actor says how many an actor has",
    "precision": "each actor chooses the precision itself",
    "lanes": "each actor captions one batch at a time",
    "watch": "run the command again to caption new images",
    "workers": "--cpus-per-actor says how many threads an actor has",
    "gallery": "make a page with captioner gallery",
    "include_keywords": "its actors do not read keywords",
    "corrections": "it writes Parquet; correct what is made of it",
    "keywords": "it writes Parquet",
    "embed": "it writes Parquet",
    "replace_existing": "it writes Parquet",
    "coco_ids": "it writes Parquet",
    "excel": "it writes Parquet",
}
"""Options that do not apply to Ray, and the reason."""
_PASSED = (*RAY_OPTIONS, "batch_size")
"""Options of `RayOptions`, which has their defaults."""
_FIELDS = {"shard_size": "images_a_shard"}
"""Their names there, where they differ."""


def run_ray(args: argparse.Namespace) -> int:
    from captioner.folder.ray_engine import RayOptions, RayRun
    from captioner.folder.sources import IMAGE_PATTERNS, Selection
    from captioner.model.bundle import Bundle
    from captioner.model.calibration import Calibration

    for name, flag in given_flags(args, _REJECTED):
        raise OptionsError(f"{flag} is not for --engine ray: {_REJECTED[name]}", name)
    check_no_server_flags(args)
    if args.format not in (None, "parquet"):
        raise OptionsError(f"--engine ray writes parquet, not {args.format}", "format")
    if len(args.sources) > 1 or not (args.sources or args.files_from):
        raise OptionsError("--engine ray takes one FOLDER", "sources")
    bundle = Bundle.load(args.model)
    say = _say_nothing if args.quiet else _say
    run = RayRun(
        args.sources[0] if args.sources else ".",
        args.output,
        bundle=None if args.model is None else str(args.model.absolute()),
        model=bundle.identity,
        options=dataclasses.replace(caption_options(args), attention=args.attention, keywords=args.keywords),
        selection=Selection(
            patterns=args.pattern or IMAGE_PATTERNS, exclude=args.exclude, hidden=args.hidden
        ),
        names=read_list(args),
        limits=image_limits(args),
        ray=RayOptions(
            **{_FIELDS.get(name, name): getattr(args, name) for name, _ in given_flags(args, _PASSED)}
        ),
        wording=repr((text_options(args), args.min_confidence)),
        transform=make_transform(args, Calibration.of(bundle.manifest)),
        retry_failed=args.retry_failed,
        overwrite=args.overwrite,
        report=say,
    )
    with _terminable(), redirect_stdout(sys.stderr), run:  # Ray prints what happens to nodes
        return _work(run, say)


def _work(run: RayRun, say: Callable[[str], None]) -> int:
    """Do what is left; the exit status. Failures are printed, all else goes to `say`."""
    say(f"{run.total - run.left} of {run.total} images are done already")
    done = 0
    try:
        for shard in run:
            done += shard.images
            for name, reason in shard.failed.items():
                _say(f"{name}: {reason}")
            say(f"{done} of {run.left} images")
    except KeyboardInterrupt:
        say(
            f"interrupted; {done} images are done and kept, {run.left - done} are left; "
            "the same command resumes"
        )
        return INTERRUPTED
    say(f"{run.total} images in all, {run.failed} of them failed")
    return 1 if run.failed else 0


@contextmanager
def _terminable() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: unfinished shards are discarded, finished ones are kept."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(text: str) -> None:
    print(f"captioner: {printable(text)}", file=sys.stderr)


def _say_nothing(_: str) -> None:
    """With --quiet."""
