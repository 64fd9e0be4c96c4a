"""`captioner batch`: caption a folder, an archive or a list of images into a file."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from captioner.cli.arguments.inputs import report_unknown_keywords
from captioner.cli.arguments.model import ServedModel, chosen_model, image_limits
from captioner.cli.arguments.search import caption_options
from captioner.cli.arguments.values import given_flags
from captioner.cli.batch_arguments import RAY_OPTIONS, add_parser
from captioner.cli.batch_inputs import make_transform, read_list
from captioner.cli.output import INTERRUPTED, counted, printable, report_failure
from captioner.errors import OptionsError
from captioner.images.urls import is_url

if TYPE_CHECKING:
    from captioner.cli.batch_progress import Progress
    from captioner.folder.corrections import Corrections
    from captioner.folder.outputs import Output, OutputOptions
    from captioner.folder.pipeline import Engine
    from captioner.folder.sources import Selection, Source
    from captioner.options import CaptionOptions

__all__ = ["add_parser", "run"]

WATCH_EVERY_S = 5.0
"""Pause between two looks at the folders, with --watch."""
_BY_ORDER = Path("order")
"""The value of --coco-ids that is no file; a file of this name is ./order."""
_STORES = "--engine ray reads and writes object stores"


def run(args: argparse.Namespace) -> int:
    if args.output == "-":
        raise OptionsError(
            "- is not a file name: batch writes files; captioner caption --recursive prints captions",
            "output",
        )
    if args.engine == "ray":
        from captioner.cli.batch_ray import run_ray

        return run_ray(args)
    for name, flag in given_flags(args, RAY_OPTIONS):
        raise OptionsError(f"{flag} needs --engine ray", name)
    for place in [*args.sources, args.output]:
        if is_url(place):
            fetched = place.lower().startswith("http")
            what = "captioner caption --allow-urls captions single images" if fetched else _STORES
            raise OptionsError(f"{place} is not a path: {what}", "sources")
    if args.watch and args.files_from is not None:
        raise OptionsError("--watch is for folders, not for --files-from", "watch")
    args.sources, args.output = [Path(place) for place in args.sources], Path(args.output)
    return _run_here(args)


def _run_here(args: argparse.Namespace) -> int:
    options = dataclasses.replace(caption_options(args), attention=args.attention, keywords=args.keywords)
    if args.gallery:
        _check_gallery(args)
    names = _check_inputs(args, read_list(args))
    corrections = _read_corrections(args)
    stop = threading.Event()
    with _open_engine(args) as engine, _interruptible(stop):
        wanted = _output_options(args, options, engine, corrections)
        status = _run_once(args, engine, options, wanted, names, stop, corrections)
        while args.watch and not stop.wait(WATCH_EVERY_S):
            status = _run_once(args, engine, options, wanted, names, stop, corrections, is_first=False)
    return status


def _read_corrections(args: argparse.Namespace) -> Corrections | None:
    from captioner.folder.corrections import Corrections

    return None if args.corrections is None else Corrections.read(args.corrections)


def _check_inputs(args: argparse.Namespace, names: Iterator[str] | None) -> Iterator[str] | None:
    """Raise `OutputError` if OUT is an input. Returns the names of a list, which raise it as they are
    read."""
    from captioner.folder.outputs.files import check_no_input

    def check(names: Iterator[str]) -> Iterator[str]:
        for name in names:
            check_no_input(args.output, [Path(*args.sources, name)])
            yield name

    files = (args.corrections, None if args.coco_ids == _BY_ORDER else args.coco_ids, args.files_from)
    check_no_input(args.output, [*args.sources, *(file for file in files if file is not None)])
    return None if names is None else check(names)


def _run_once(
    args: argparse.Namespace,
    engine: Engine,
    options: CaptionOptions,
    wanted: OutputOptions,
    names: Iterator[str] | None,
    stop: threading.Event,
    corrections: Corrections | None,
    *,
    is_first: bool = True,
) -> int:
    """Caption what is new; the exit status. A run that watches says nothing when there is nothing new."""
    from captioner.cli.batch_progress import Progress
    from captioner.folder.open import open_sources
    from captioner.folder.outputs import make_output
    from captioner.folder.run import FolderRun

    with open_sources(args.sources, _selection(args), names) as sources:
        output = make_output(args.output, wanted, args.format)
        run = FolderRun(
            sources,
            engine,
            output,
            options,
            transform=wanted.transform,
            stop=stop,
            max_bytes=image_limits(args).max_bytes,
            overwrite=args.overwrite and is_first,
            retry_failed=args.retry_failed and is_first,
            may_be_empty=args.watch,
        )
        with run:
            if not is_first and not run.left and not run.outdated:
                return 1 if run.count_failed()[0] else 0
            with Progress(run.total, run.left, quiet=args.quiet) as progress:
                if is_first:
                    _say_left_out(progress, sources)
                    _say_unmatched(progress, corrections, run.names())
                    for result in run.failures():
                        progress.say_failure(result, "from an earlier run")
                for result in run:
                    progress.count(result)
            failed, left_out = run.count_failed()
    return _conclude(args, progress, output, run.left, failed, left_out)


def _say_left_out(progress: Progress, sources: Sequence[Source]) -> None:
    """What the sources hold that is not captioned."""
    left_out = [source.left_out for source in sources]
    links = sum(one.links for one in left_out)
    archives = sum(one.archives for one in left_out)
    within = sum(one.archives_within for one in left_out)
    for count, noun, text in (
        (links, "link", "not followed: {} to folders or out of the folder"),
        (archives, "archive", "not opened: {} in the folder; name one to caption what it holds"),
        (within, "archive", "not opened: {} inside another archive; unpack the outer one"),
    ):
        if count:
            progress.say(text.format(counted(count, noun)))


def _say_unmatched(progress: Progress, corrections: Corrections | None, names: Iterator[str]) -> None:
    """How many of the corrections are of none of these photos."""
    if corrections is not None and (unmatched := corrections.unmatched(names)):
        count = counted(len(unmatched), "correction")
        progress.say(f"not used: {count} of no photo in the output, such as {printable(unmatched[0])}")


def _conclude(
    args: argparse.Namespace, progress: Progress, output: Output, left: int, failed: int, left_out: int
) -> int:
    """Print how the run ended, and write the gallery if all is done; the exit status."""
    if progress.done < left:
        progress.say(
            f"interrupted; {progress.done} images are done and kept, {left - progress.done} are left; "
            "the same command resumes"
        )
        return INTERRUPTED
    if kept := getattr(output, "kept", 0):
        progress.say(f"{kept} kept as they were: not written by this command, or edited since")
    progress.summarize(failed, left_out)
    if args.gallery and progress.total:
        _write_gallery(args)
    return 1 if failed else 0


def _selection(args: argparse.Namespace) -> Selection:
    from captioner.folder.sources import IMAGE_PATTERNS, Selection

    return Selection(patterns=args.pattern or IMAGE_PATTERNS, exclude=args.exclude, hidden=args.hidden)


def _output_options(
    args: argparse.Namespace, options: CaptionOptions, engine: Engine, corrections: Corrections | None
) -> OutputOptions:
    from captioner.folder.outputs import OutputOptions

    return OutputOptions(
        attention=args.attention,
        alternatives=options.alternatives > 0,
        grid=options.attention_size or engine.grid,
        transform=make_transform(args, engine.calibration, corrections),
        root=args.sources[0] if len(args.sources) == 1 and args.sources[0].is_dir() else None,
        embed=args.embed,
        keywords=args.keywords,
        hierarchy=args.hierarchy,
        replace_existing=args.replace_existing,
        excel=args.excel,
        image_ids=None if args.coco_ids in (None, _BY_ORDER) else _read_image_ids(args.coco_ids),
        ids_by_order=args.coco_ids == _BY_ORDER,
        report=report_failure,
    )


def _read_image_ids(path: Path) -> dict[str, int | None]:
    """`OutputOptions.image_ids` from a file of COCO or Karpathy."""
    from captioner.references import image_key, read_image_ids

    ids: dict[str, int | None] = {}
    for name, image_id in read_image_ids(path):
        key = image_key(name)
        ids[key] = None if key in ids else image_id
        ids[name] = image_id
    return ids


def _check_gallery(args: argparse.Namespace) -> None:
    from captioner.folder.outputs import format_of
    from captioner.overlay.gallery.write import check_page

    from_folder = len(args.sources) == 1 and args.sources[0].is_dir()
    if not (from_folder and args.attention and format_of(args.output, args.format) == "jsonl"):
        raise OptionsError("--gallery is for one folder, with --attention and jsonl", "gallery")
    check_page(args.gallery)


def _write_gallery(args: argparse.Namespace) -> None:
    from captioner.cli.gallery import read_records
    from captioner.overlay.gallery import write_gallery

    limits = image_limits(args)
    write_gallery(read_records(args.output), args.gallery, args.sources[0], limits=limits)


@contextmanager
def _open_engine(args: argparse.Namespace) -> Iterator[Engine]:
    model = chosen_model(args)
    if isinstance(model, ServedModel):
        from captioner.cli.batch_servers import ServerEngine

        with ServerEngine(model.addresses, model.options) as servers:
            yield servers
    else:
        from captioner.folder.pipeline import DEFAULT_BATCH_SIZE, LocalEngine

        with model.open() as captioner:
            engine = LocalEngine(
                captioner,
                args.batch_size or DEFAULT_BATCH_SIZE,
                args.workers,
                include_keywords=bool(args.include_keywords),
            )
            yield engine
            if not args.quiet:
                report_unknown_keywords(engine.unknown_keywords)


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Make the first Ctrl-C or SIGTERM end the run after the work in flight, and the second end it at
    once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("captioner: finishing the batches in flight; interrupt again to stop at once", file=sys.stderr)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
