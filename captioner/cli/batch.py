"""`captioner batch`: caption a folder, an archive or a list of images into a file."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

from captioner.cli.common import add_caption_arguments, caption_options, image_limits, open_captioner
from captioner.errors import OptionsError

if TYPE_CHECKING:
    from captioner.folder.pipeline import Engine
    from captioner.folder.sources import Source

FORMATS = ("jsonl",)
_INTERRUPTED = 128 + 2


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "batch",
        help="caption a folder of images into a file",
        description="Caption folders, archives and lists of images. The same command again goes on where "
        "the last one ended, however it ended, and captions what is new or has changed.",
        epilog="Exit status: 0 all done; 1 some images have no caption, each named on stderr; 2 wrong usage, "
        "or the output cannot be written; 130 interrupted, what was in flight is kept.",
    )
    parser.add_argument(
        "sources", nargs="*", type=Path, metavar="FOLDER", help="folder, zip or tar archive of images"
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="OUT")
    parser.add_argument("--format", choices=FORMATS, help="default: as the name of OUT says")
    _add_input(parser.add_argument_group("input"))
    run = parser.add_argument_group("run")
    again = run.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on from an earlier run (the default)")
    again.add_argument("--overwrite", action="store_true", help="caption all again; replace OUT")
    run.add_argument("--retry-failed", action="store_true", help="try images again that failed before")
    run.add_argument("--batch-size", type=_count, default=32, metavar="N", help="images a batch (32)")
    run.add_argument("--workers", type=_count, metavar="N", help="threads that read images (one a core)")
    parser.add_argument("--attention", action="store_true", help="write words with their attention maps")
    add_caption_arguments(parser)


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--files-from",
        metavar="LIST",
        help="caption the files that LIST names, one a line, relative to FOLDER; - reads the list from stdin",
    )
    group.add_argument("-0", "--null", action="store_true", help="names in LIST end with null bytes")
    group.add_argument(
        "--pattern", action="append", metavar="P", help="only names like P, for instance '*.jpg'; repeatable"
    )
    group.add_argument(
        "--exclude", action="append", default=[], metavar="P", help="no files or folders like P; repeatable"
    )
    group.add_argument("--hidden", action="store_true", help="also files and folders that start with a dot")


def run(args: argparse.Namespace) -> int:
    from captioner.cli.batch_progress import Progress
    from captioner.folder.outputs import OutputOptions, make_output
    from captioner.folder.run import FolderRun

    options = dataclasses.replace(caption_options(args), attention=args.attention)
    written = OutputOptions(attention=args.attention, alternatives=options.alternatives > 0)
    output = make_output(args.output, written, args.format)
    sources = _make_sources(args)
    with _open_engine(args) as engine:
        run = FolderRun(
            sources,
            engine,
            output,
            options,
            max_bytes=image_limits(args).max_bytes,
            overwrite=args.overwrite,
            retry_failed=args.retry_failed,
        )
        with _interruptible(run.stop), run, Progress(run.total, run.left) as progress:
            for result in run:
                progress.count(result)
            failed = run.count_failed()
    if progress.done < run.left:
        progress.say(
            f"interrupted; {progress.done} images are done and kept, {run.left - progress.done} are left; "
            "the same command goes on"
        )
        return _INTERRUPTED
    progress.summarize(failed)
    return 1 if failed else 0


def _make_sources(args: argparse.Namespace) -> list[Source]:
    from captioner.folder.open import open_sources
    from captioner.folder.sources import IMAGE_PATTERNS, Selection, read_names

    selection = Selection(patterns=args.pattern or IMAGE_PATTERNS, exclude=args.exclude, hidden=args.hidden)
    names = None
    if args.files_from is not None:
        if args.pattern or args.exclude or args.hidden:
            raise OptionsError("--pattern, --exclude and --hidden are for folders, not for --files-from")
        names = read_names(_open_list(args.files_from), b"\0" if args.null else b"\n")
    return open_sources(args.sources, selection, names)


def _open_list(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise OptionsError(f"--files-from: {name}: {error.strerror}", "files_from") from error


@contextmanager
def _open_engine(args: argparse.Namespace) -> Iterator[Engine]:
    from captioner.folder.pipeline import LocalEngine

    with open_captioner(args) as captioner:
        yield LocalEngine(captioner, args.batch_size, args.workers)  # type: ignore[arg-type]


@contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the run after what is in flight, the second at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("captioner: finishing what is in flight; again to stop at once", file=sys.stderr)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return int(text)
